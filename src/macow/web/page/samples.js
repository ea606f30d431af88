// Samples: a grid by temperature, seed and count.

import { ask } from "./api.js";
import { byId, el, offer } from "./dom.js";
import { Task } from "./task.js";

const NOTHING = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";

export function samples(model) {
  const panel = byId("samples");
  const form = panel.querySelector("form");
  const task = new Task(panel.querySelector(".task"));
  const grid = byId("grid");
  const save = byId("save-grid");
  const [temperature, seed, count, label] = ["temperature", "seed", "count", "samples-label"].map(byId);

  temperature.value = model.temperature;
  seed.value = model.seed;
  count.max = model.most_count;
  count.value = Math.min(model.most_count, model.labels.length ? 8 * model.labels.length : 64);
  grid.classList.toggle("large", model.shape[2] >= 64);

  function draw() {
    byId("temperature-is").value = Number(temperature.value).toFixed(2);
    if (!task.accepts(form)) return;
    const wish = {
      temperature: Number(temperature.value),
      seed: Number(seed.value),
      count: Number(count.value),
      label: label.value || null,
    };
    offer(save, null);
    task.run(async (signal, progress) => {
      let missing = 0;
      await ask("/api/samples", wish, {
        signal,
        onWait: (text) => progress(0, 0, text),
        onLine: (line) => {
          if (line.grid) return offer(save, line.grid, name(wish));
          line.images.forEach((source, i) => put(line.first + i, source));
          missing += line.images.filter((source) => source === null).length;
          progress(line.first + line.images.length, line.of);
        },
      });
      while (grid.children.length > wish.count) grid.lastChild.remove();
      turns(wish);
      byId("missing").hidden = !missing;
      byId("missing").textContent = `${missing} of ${wish.count} lie beyond what the model can compute: they are left out.`;
      task.status.textContent = `${wish.count} samples at temperature ${wish.temperature}`;
    });
  }

  function put(place, source) {
    while (grid.children.length <= place) {
      grid.append(el("img"));
    }
    grid.children[place].src = source ?? NOTHING;
    grid.children[place].alt = source ? `sample ${place}` : `no sample ${place}`;
  }

  // A column for each label, where they take turns.
  function turns(wish) {
    const columns = model.labels.length && !wish.label && wish.count >= model.labels.length;
    grid.classList.toggle("turns", Boolean(columns));
    grid.style.setProperty("--turns", model.labels.length);
  }

  const name = (wish) => `${model.name}-seed${wish.seed}-t${wish.temperature}.png`;
  form.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("another").addEventListener("click", () => {
    seed.value = (Number(seed.value) + 1) % 2 ** 32;
    draw();
  });
  return draw;
}
