// Asking the server: lines of JSON as they come, and words for what goes wrong.

const TRIES = 5;

export class Mistake extends Error {}

// Calls onLine for each answer and gives back the last one.
export async function ask(path, body, { signal, onLine = () => {}, onWait = () => {} } = {}) {
  const response = await patiently(path, body, signal, onWait);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let last = null;
  for (;;) {
    const { value, done } = await reader.read().catch(unreachable);
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines.filter(Boolean)) {
      last = JSON.parse(line);
      if (last.error) throw new Mistake(last.error);
      onLine(last);
    }
    if (done) return last;
  }
}

export async function get(path) {
  const response = await fetch(path).catch(unreachable);
  if (!response.ok) throw new Mistake(await reason(response));
  return response.json().catch(unreachable);
}

// While the server is busy, tries again a few times.
async function patiently(path, body, signal, onWait) {
  const raw = body instanceof Blob;
  const headers = { "Content-Type": raw ? "application/octet-stream" : "application/json" };
  for (let tries = 1; ; tries++) {
    const options = { method: "POST", body: raw ? body : JSON.stringify(body), headers, signal };
    const response = await fetch(path, options).catch(unreachable);
    if (response.ok) return response;
    const text = await reason(response);
    if (response.status !== 503 || tries === TRIES) throw new Mistake(text);
    onWait(text);
    await pause(1000 * Number(response.headers.get("Retry-After") ?? 1), signal);
  }
}

async function reason(response) {
  const content = await response.json().catch(() => ({}));
  return content.error ?? `the server says ${response.status}`;
}

function unreachable(error) {
  if (error.name === "AbortError") throw error;
  throw new Mistake("the server does not answer: is `macow serve` still running?");
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
