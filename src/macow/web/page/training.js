// Training: the curves of runs, and what they draw, again and again while they train.

import { get, Mistake } from "./api.js";
import { curves } from "./charts.js";
import { byId, el, number, rewrite } from "./dom.js";
import { Task } from "./task.js";

const EVERY = 2000; // milliseconds

export function training(model) {
  const panel = byId("training");
  const task = new Task(panel.querySelector(".task"));
  const cards = [];
  let timer = null;

  byId("no-runs").hidden = model.runs > 0;

  async function refresh() {
    clearTimeout(timer);
    if (panel.hidden || document.hidden || !model.runs) return;
    try {
      show((await get("/api/runs")).runs);
      task.error.hidden = true;
    } catch (error) {
      if (!(error instanceof Mistake)) throw error;
      task.say(error); // what was shown stays, and the next look may succeed
    }
    timer = setTimeout(refresh, EVERY);
  }

  function show(runs) {
    const place = byId("curves");
    place.hidden = false;
    place.replaceChildren(curves(runs, place.clientWidth));
    runs.forEach((run, i) => {
      if (!cards[i]) {
        cards[i] = new Card(run, i);
        byId("runs").append(cards[i].element);
      }
      cards[i].show(run);
    });
  }

  document.addEventListener("visibilitychange", refresh);
  return refresh;
}

class Card {
  constructor(run, i) {
    this.number = i;
    this.problem = el("p", { className: "error", role: "alert", hidden: true });
    this.figures = el("dl", { className: "figures" });
    this.picture = el("img", { hidden: true });
    this.slider = el("input", { type: "range", min: 0, step: 1, hidden: true,
      "aria-label": `${run.name}: samples over time` });
    this.caption = el("p", { className: "when", hidden: true });
    this.element = el("article", { className: `card run run${i % 6}` },
      el("h3", { textContent: run.name }), this.problem, this.figures, this.picture, this.slider, this.caption);
    this.steps = [];
    this.slider.addEventListener("input", () => this.look());
  }

  show(run) {
    const of = run.steps ? ` of ${run.steps.toLocaleString("en")}` : "";
    const rows = [["step", run.step ? `${run.step.toLocaleString("en")}${of}${since(run)}` : "no figures yet"]];
    if (run.test.length) rows.push(["test bits/dim", `${number(run.test.at(-1)[1], 3)}, best ${number(run.best, 3)}`]);
    if (run.train.length) rows.push(["training bits/dim", number(run.train.at(-1)[1], 3)]);
    if (run.images_per_s) rows.push(["speed", `${number(run.images_per_s, 0)} images/s`]);
    this.figures.replaceChildren(...rows.flatMap(([name, value]) => [
      el("dt", { textContent: name }), el("dd", { textContent: value })]));
    this.problem.hidden = !run.problem;
    rewrite(this.problem, run.problem ?? "");
    const newest = Number(this.slider.value) >= this.steps.length - 1;
    if (run.samples.length === this.steps.length) return;
    this.steps = run.samples;
    this.slider.max = this.steps.length - 1;
    if (newest) this.slider.value = this.steps.length - 1; // stays where a hand has put it
    this.slider.hidden = this.steps.length < 2;
    this.look();
  }

  look() {
    const step = this.steps[Number(this.slider.value)];
    if (step === undefined) return;
    this.picture.src = `/api/runs/${this.number}/samples/${step}`;
    this.picture.alt = `samples at step ${step}`;
    this.picture.hidden = this.caption.hidden = false;
    this.caption.textContent = `Samples at step ${step.toLocaleString("en")}, a row for each temperature`;
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
  }
}

function since(run) {
  if (run.age_s === null || (run.steps && run.step >= run.steps)) return "";
  if (run.age_s < 120) return `, ${Math.round(run.age_s)} s ago`;
  return `, ${Math.round(run.age_s / 60).toLocaleString("en")} min ago`;
}
