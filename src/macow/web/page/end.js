// The chooser of an end of a line: a sample by its number, or an image.

import { ask, Mistake } from "./api.js";
import { el } from "./dom.js";

export class End {
  constructor(place, name, model, task, onChange, sample = 0) {
    this.model = model;
    this.task = task;
    this.onChange = onChange;
    this.image = null;
    this.number = el("input", {
      type: "number", min: 0, max: 4294967295, step: 1, value: sample, required: true,
      "aria-label": `${name}: number of the sample`,
    });
    this.picture = el("img", { alt: `${name}: the image`, hidden: true });
    this.back = el("button", { type: "button", textContent: "Take a sample", hidden: true });
    this.input = el("input", { type: "file", accept: "image/*", "aria-label": `${name}: an image` });
    this.button = el("label", { className: "button file" }, this.input, "Image …");
    const box = el("fieldset", {}, el("legend", { textContent: `${name}: sample` }),
      el("div", { className: "end" }, this.number, this.picture, this.button, this.back));
    this.legend = box.firstChild;
    this.name = name;
    place.append(box);
    this.input.addEventListener("change", (event) => {
      event.stopPropagation(); // the form would ask before the image is there
      this.take(this.input.files[0]);
    });
    this.back.addEventListener("click", () => this.show(null));
    box.addEventListener("dragover", (event) => event.preventDefault());
    box.addEventListener("drop", (event) => {
      event.preventDefault();
      this.take(event.dataTransfer.files[0]);
    });
  }

  // What the server is told of it.
  wish(temperature, seed) {
    if (this.image) return { image: this.image };
    return { sample: Number(this.number.value), seed, temperature };
  }

  async take(file) {
    if (!file) return;
    let image = null;
    await this.task.run(async (signal) => {
      if (file.size > this.model.most_upload) throw new Mistake(tooLarge(file, this.model));
      const answer = await ask("/api/image", file, { signal }).catch((error) => {
        throw error instanceof Mistake ? new Mistake(`${file.name}: ${error.message}`) : error;
      });
      image = answer.image;
    });
    this.input.value = "";
    if (image) this.show(image);
  }

  show(image) {
    this.image = image;
    this.legend.textContent = `${this.name}: ${image ? "image" : "sample"}`;
    this.picture.hidden = this.back.hidden = !image;
    this.number.hidden = Boolean(image);
    this.number.disabled = Boolean(image);
    if (image) this.picture.src = image;
    this.onChange();
  }
}

export const tooLarge = (file, model) =>
  `${file.name}: ${(file.size / 2 ** 20).toFixed(0)} MB are more than ${model.most_upload / 2 ** 20} MB`;
