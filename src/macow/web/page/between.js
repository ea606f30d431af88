// Between: a film from one image to another, walked by hand or played.

import { ask } from "./api.js";
import { byId, el, offer } from "./dom.js";
import { End } from "./end.js";
import { Task } from "./task.js";

const FRAME = 60; // milliseconds, as in the saved film
const IN_STRIP = 12;

export function between(model) {
  const panel = byId("between");
  const form = panel.querySelector("form");
  const task = new Task(panel.querySelector(".task"));
  const [temperature, frames, label] = ["between-temperature", "frames", "between-label"].map(byId);
  const [film, frame, place, play, save] = ["film", "frame", "place", "play", "save-film"].map(byId);
  const ends = [new End(byId("end-a"), "From", model, task, walk, 0),
    new End(byId("end-b"), "To", model, task, walk, 2)];
  let pictures = [];
  let playing = null;

  temperature.value = model.temperature;
  frames.max = model.most_frames;
  frames.value = Math.min(24, model.most_frames);

  function walk() {
    if (!task.accepts(form)) return;
    const [start, end] = ends.map((one) => one.wish(Number(temperature.value), model.seed));
    const wish = { start, end, frames: Number(frames.value), label: label.value || null };
    offer(save, null);
    task.run(async (signal, progress) => {
      const found = [];
      await ask("/api/between", wish, {
        signal,
        onWait: (text) => progress(0, 0, text),
        onLine: (line) => {
          if (line.film) return offer(save, line.film, `${model.name}.webp`);
          found.push(...line.images.filter((image) => image));
          progress(line.first + line.images.length, line.of);
        },
      });
      show(found);
      const lost = wish.frames - found.length;
      task.status.textContent = `${found.length} pictures${lost ? `, ${lost} left out, beyond what the model can compute` : ""}`;
    });
  }

  function show(found) {
    pictures = found;
    place.max = found.length - 1;
    film.hidden = false;
    const every = Math.max(1, Math.floor(found.length / IN_STRIP));
    byId("strip").replaceChildren(...found.filter((_, i) => i % every === 0).map((src) => el("img", { src, alt: "" })));
    look();
  }

  function look() {
    const at = Number(place.value);
    frame.src = pictures[at];
    frame.alt = `picture ${at + 1} of ${pictures.length}`;
    place.setAttribute("aria-valuetext", frame.alt);
  }

  function stop() {
    clearInterval(playing);
    playing = null;
    play.textContent = "Play";
  }

  // There and back, until told to stop.
  function start() {
    let way = 1;
    play.textContent = "Stop";
    playing = setInterval(() => {
      const next = Number(place.value) + way;
      if (next < 0 || next >= pictures.length) way = -way;
      place.value = Number(place.value) + way;
      look();
    }, FRAME);
  }

  play.addEventListener("click", () => (playing ? stop() : start()));
  place.addEventListener("input", () => {
    stop();
    look();
  });
  form.addEventListener("change", walk);
  form.addEventListener("submit", (event) => event.preventDefault());
  return walk;
}
