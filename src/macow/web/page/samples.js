// Samples: a grid by temperature, seed and count.

import { ask } from "./api.js";
import { byId, el, offer } from "./dom.js";
import { Task } from "./task.js";

const NOTHING = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";

const WAIT = 400; // milliseconds that a new wish leaves to the one before

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

  let began = null;
  let later = null;

  // While a slider moves, pictures that are nearly there are shown, and the newest wish comes next.
  function change() {
    byId("temperature-is").value = Number(temperature.value).toFixed(2);
    clearTimeout(later);
    const left = began === null ? 0 : began + WAIT - performance.now();
    if (left > 0) later = setTimeout(draw, left);
    else draw();
  }

  async function draw() {
    clearTimeout(later);
    later = null;
    if (!task.accepts(form)) return;
    const mine = performance.now();
    began = mine;
    const wish = {
      temperature: Number(temperature.value),
      seed: Number(seed.value),
      count: Number(count.value),
      label: label.value || null,
    };
    offer(save, null);
    await task.run(async (signal, progress) => {
      let [missing, repeated] = [0, 0];
      await ask("/api/samples", wish, {
        signal,
        onWait: (text) => progress(0, 0, text),
        onLine: (line) => {
          if (line.grid) {
            repeated = line.repeated;
            return offer(save, line.grid, name(wish));
          }
          line.images.forEach((source, i) => put(line.first + i, source));
          missing += line.images.filter((source) => source === null).length;
          progress(line.first + line.images.length, line.of);
        },
      });
      while (grid.children.length > wish.count) grid.lastChild.remove();
      turns(wish);
      byId("missing").hidden = !repeated;
      byId("missing").textContent =
        `Repeated draws that led to no image: ${repeated}.` +
        (missing ? ` ${missing} of ${wish.count} lie beyond what the model can compute: they are left out.` : "");
      task.status.textContent = `${wish.count} samples at temperature ${wish.temperature}`;
    });
    if (began !== mine) return;
    began = null;
    if (later !== null) draw();
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
    const many = model.labels.length;
    const columns = many > 1 && many <= 20 && !wish.label && wish.count >= many;
    grid.classList.toggle("turns", columns);
    grid.style.setProperty("--turns", many);
  }

  const name = (wish) => `${model.name}-seed${wish.seed}-t${wish.temperature}.png`;
  form.addEventListener("input", change);
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("another").addEventListener("click", () => {
    seed.value = (Number(seed.value) + 1) % 2 ** 32;
    change();
  });
  return change;
}
