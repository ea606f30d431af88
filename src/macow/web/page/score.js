// Score: what images cost, where, and whether they come back.

import { ask, Mistake } from "./api.js";
import { histogram } from "./charts.js";
import { byId, el, number } from "./dom.js";
import { tooLarge } from "./end.js";
import { heat } from "./heat.js";
import { Task } from "./task.js";

export function score(model) {
  const panel = byId("score");
  const task = new Task(panel.querySelector(".task"));
  const list = byId("scores");
  const drop = byId("score-drop");
  const label = byId("score-label");
  const waiting = [];
  let going = false;

  // One after the other: a mistake in one file costs the others nothing.
  async function add(files) {
    waiting.push(...files);
    if (going || !waiting.length) return;
    going = true;
    let done = 0;
    await task.run(async (signal, progress) => {
      while (waiting.length) {
        progress(done, done + waiting.length);
        const file = waiting.shift();
        list.prepend(await card(file, signal, (text) => progress(0, 0, text)));
        done += 1;
      }
      task.status.textContent = `${done} scored`;
    });
    going = false;
    waiting.length = 0;
  }

  async function card(file, signal, onWait) {
    const title = el("h3", { textContent: file.name });
    try {
      if (file.size > model.most_upload) throw new Mistake(tooLarge(file, model));
      const query = label.value ? `?label=${encodeURIComponent(label.value)}` : "";
      const found = await ask(`/api/score${query}`, file, { signal, onWait });
      return el("li", { className: "card" }, title, scored(found));
    } catch (error) {
      if (!(error instanceof Mistake)) throw error;
      return el("li", { className: "card" }, title,
        el("p", { className: "error", role: "alert", textContent: error.message }));
    }
  }

  function scored(found) {
    const { canvas, low, high } = heat(found.map);
    const looks = el("div", { className: "looks" },
      look(el("img", { src: found.image, alt: "the image as the model sees it" }), "as the model sees it"),
      look(canvas, `bits by pixel, ${number(low, 1)} to ${number(high, 1)}`),
      look(el("img", { src: found.reconstruction, alt: "the image from its latents" }), "from its latents"));
    const right = el("div", {}, figures(found));
    if (model.reference) right.append(histogram(model.reference, found.bits_per_dim));
    return el("div", { className: "scored" }, looks, right);
  }

  function figures(found) {
    const rows = [["bits/dim", number(found.bits_per_dim, 3), "first"]];
    rows.push(["percentile", found.percentile === null ? "unknown: the model has no reference images"
      : `${number(found.percentile, 1)}: ${usual(found.percentile)}`]);
    rows.push(["WebP would take", `${number(found.codec_bits_per_dim, 3)} bits/dim`]);
    const lost = found.values_lost ? `${found.values_lost} values are lost` : "every value comes back";
    rows.push(["round trip", `off by ${found.round_trip_error.toExponential(1)} grey levels: ${lost}`]);
    const parts = rows.flatMap(([name, value, kind = ""]) => [
      el("dt", { textContent: name }), el("dd", { textContent: value, className: kind })]);
    return el("dl", { className: "figures" }, ...parts);
  }

  const look = (picture, caption) =>
    el("figure", {}, picture, el("figcaption", { textContent: caption }));
  const images = (transfer) => [...transfer.files];

  byId("score-files").addEventListener("change", (event) => {
    add([...event.target.files]);
    event.target.value = "";
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") add(images(event.dataTransfer));
    });
  }
  document.addEventListener("paste", (event) => {
    if (!panel.hidden) add(images(event.clipboardData));
  });
}

function usual(percentile) {
  if (percentile <= 1) return "costs less than nearly all reference images";
  if (percentile >= 99) return "costs more than nearly all reference images";
  return `costs more than ${Math.round(percentile)} of 100 reference images`;
}
