// The page: asks what the model is, wires the parts, and shows one at a time.

import { get } from "./api.js";
import { between } from "./between.js";
import { byId, el } from "./dom.js";
import { inside } from "./inside.js";
import { samples } from "./samples.js";
import { score } from "./score.js";
import { training } from "./training.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const panels = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));
const parts = {};
const begun = new Set();

function show(name) {
  const at = Math.max(0, panels.findIndex((panel) => panel.id === name));
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(i === at));
    tab.tabIndex = i === at ? 0 : -1;
    panels[i].hidden = i !== at;
  });
  const id = panels[at].id;
  if (id === "training" || !begun.has(id)) parts[id]?.(); // computes when it is first looked at
  begun.add(id);
}

function choose(tab) {
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  show(tab.getAttribute("aria-controls"));
}

const MOVES = { ArrowRight: (i) => i + 1, ArrowLeft: (i) => i - 1, Home: () => 0, End: () => -1 };

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const next = tabs.at(move(i) % tabs.length);
    next.focus();
    choose(next);
  });
});
window.addEventListener("hashchange", () => show(location.hash.slice(1)));
// A file that misses the place for it must not replace the page.
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());

try {
  const model = await get("/api/model");
  const [channels, height, width] = model.shape;
  const colours = channels === 1 ? "grey" : "colour";
  document.title = `${model.name} · macow`;
  byId("name").textContent = model.name;
  byId("facts").textContent = `${width} × ${height} ${colours} images of ${model.n_bits} bits, ` +
    `${model.parameters.toLocaleString("en")} parameters` +
    (model.labels.length ? `, ${model.labels.length} labels` : "");
  document.body.style.setProperty("--shape", `${width} / ${height}`);
  for (const control of document.querySelectorAll(".labels")) {
    control.hidden = !model.labels.length;
    for (const name of model.labels) {
      control.querySelector("select").append(el("option", { value: name, textContent: name }));
    }
  }
  Object.assign(parts, {
    samples: samples(model), score: score(model), between: between(model),
    inside: inside(model), training: training(model),
  });
  for (const hidden of document.querySelectorAll("main, .tabs")) hidden.hidden = false;
  show(location.hash.slice(1));
} catch (error) {
  byId("facts").textContent = error.message;
  byId("facts").className = "error";
  byId("facts").setAttribute("role", "alert");
}
