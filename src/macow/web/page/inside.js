// Inside: levels drawn anew, receptive fields, and what the flow is made of.

import { ask } from "./api.js";
import { byId, el, number, svg } from "./dom.js";
import { End } from "./end.js";
import { Task } from "./task.js";

export function inside(model) {
  const panel = byId("inside");
  const form = byId("level-controls");
  const task = new Task(panel.querySelector(".task"));
  const fieldTask = new Task(byId("field-task"));
  const [temperature, label, level] = ["level-temperature", "inside-label", "field-level"].map(byId);
  const end = new End(byId("end-level"), "Look at", model, task, levels);
  let seed = model.seed;

  temperature.value = model.temperature;

  function levels() {
    if (!task.accepts(form)) return;
    const heat = Number(temperature.value);
    const wish = { start: end.wish(heat, model.seed), temperature: heat, seed, label: label.value || null };
    task.run(async (signal, progress) => {
      const rows = [];
      let of = 0;
      await ask("/api/levels", wish, {
        signal,
        onWait: (text) => progress(0, 0, text),
        onLine: (line) => {
          of = line.of ?? of;
          progress(rows.length, of);
          rows.push(line.original ? row("As it is", "", [line.original], "the picture")
            : row(`Level ${line.level} anew`,
              `${line.latents.toLocaleString("en")} latents; a pixel changes by ${number(line.change, 0)} grey levels`,
              line.images, `level ${line.level} drawn anew`));
        },
      });
      byId("levels").replaceChildren(...rows);
      task.status.textContent = `${rows.length - 1} levels drawn anew`;
    });
  }

  function row(title, text, images, alt) {
    return el("div", { className: "level" },
      el("p", {}, el("strong", { textContent: title }), text),
      el("div", { className: "row" }, ...images.map((src) => el("img", { src, alt }))));
  }

  function fields() {
    fieldTask.run(async (signal) => {
      const wish = { level: Number(level.value), label: label.value || null };
      const found = [];
      await ask("/api/fields", wish, { signal, onLine: (line) => found.push(line) });
      byId("fields").replaceChildren(...found.map((one, i) => field(one, found[i - 1], i, reach(found.at(-1).field))));
    });
  }

  form.addEventListener("change", levels);
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("anew").addEventListener("click", () => {
    seed = (seed + 1) % 2 ** 32;
    levels();
  });
  for (const one of model.masked_levels) level.append(el("option", { value: one, textContent: one }));
  for (const chooser of [level, label]) chooser.addEventListener("change", fields);
  if (!model.masked_levels.length) {
    byId("fields").replaceWith(el("p", { textContent: "This model has no masked convolutions." }));
    level.parentElement.hidden = true;
  }
  byId("drawing").replaceChildren(...drawing(model));
  return () => {
    levels();
    if (model.masked_levels.length) fields();
  };
}

// How far from the middle a pixel still counts.
function reach(rows) {
  const middle = (rows.length - 1) / 2;
  const far = rows.map((row, r) => row.map((share, c) => (share ? Math.max(Math.abs(r - middle), Math.abs(c - middle)) : 0)));
  return Math.max(...far.flat());
}

// Slopes fall off fast: by their logarithm, three powers of ten are seen.
function field({ name, order, field: rows }, before, i, far) {
  const middle = (rows.length - 1) / 2;
  const cells = rows.flatMap((row, r) => row.map((share, c) => {
    if (!share) return null;
    const kind = r === middle && c === middle ? "middle" : before && !before.field[r][c] ? "new" : "";
    const strength = Math.max(0.15, Math.min(1, 1 + Math.log10(share) / 3));
    return svg("rect", { class: kind, x: c + 0.04, y: r + 0.04, width: 0.92, height: 0.92,
      "fill-opacity": kind === "middle" ? 1 : strength });
  })).filter(Boolean);
  const caption = `${i + 1}. ${i ? "then " : ""}${order}`;
  return el("li", {}, el("figure", {},
    svg("svg", { viewBox: `${middle - far - 0.5} ${middle - far - 0.5} ${2 * far + 2} ${2 * far + 2}`, role: "img",
      "aria-label": `${caption}: ${cells.length} pixels count` }, ...cells),
    el("figcaption", { title: name }, el("strong", { textContent: caption }), ` ${cells.length} pixels`)));
}

function* drawing(model) {
  const most = Math.max(...model.shape.slice(1));
  yield part(model.shape, most, "Image", `${model.n_bits} bits a value`);
  for (const stage of model.drawing) {
    if (stage.kind === "squeeze") {
      yield part(stage.shape, most, "Squeeze", "2 x 2 pixels become channels");
    } else {
      const steps = stage.steps ? `${stage.steps} steps of ${stage.step.join(", ")}; ` : "";
      yield part(stage.shape, most, stage.name,
        `${steps}${stage.parameters.toLocaleString("en")} parameters`, stage.latents);
    }
  }
}

// A slab as wide and high as the image, as deep as it has channels.
function part(shape, most, title, text, latents) {
  const [channels, height, width] = shape;
  const [w, h] = [(34 * width) / most, (34 * height) / most];
  const d = Math.min(26, 3 + 3.2 * Math.log2(channels + 1));
  const [x, y] = [(72 - w - d * 0.8) / 2, (60 - h + d * 0.6) / 2];
  const [dx, dy] = [d * 0.8, -d * 0.6];
  const slab = svg("svg", { viewBox: "0 0 72 60", "aria-hidden": "true" },
    svg("path", { class: "slab", d: `M${x} ${y}h${w}v${h}h${-w}zM${x} ${y}l${dx} ${dy}h${w}l${-dx} ${-dy}zM${x + w} ${y}l${dx} ${dy}v${h}l${-dx} ${-dy}z` }));
  const item = el("li", {}, slab,
    el("p", {}, el("strong", { textContent: title }), ` ${shape.join(" × ")}`, el("br"), text));
  if (latents?.[0]) item.append(el("span", { className: "leaving", textContent: `→ z ${latents.join(" × ")}` }));
  return item;
}
