// One thing at a time in one place of the page: its progress, its cancel button, its mistake.

import { Mistake } from "./api.js";
import { el, rewrite, wrongIn } from "./dom.js";

const SOON = 300; // milliseconds: what is faster needs no progress

export class Task {
  constructor(place) {
    this.bar = el("progress", { "aria-label": "Progress" });
    this.text = el("span");
    this.button = el("button", { type: "button", textContent: "Cancel" });
    this.going = el("div", { className: "going", hidden: true }, this.bar, this.text, this.button);
    this.status = el("p", { className: "hidden", role: "status" });
    this.error = el("p", { className: "error", role: "alert", hidden: true });
    place.append(this.going, this.status, this.error);
    this.button.addEventListener("click", () => {
      this.cancel();
      this.status.textContent = "Cancelled";
    });
  }

  // Begins something new; what was going on is cancelled. `work(signal, progress)`.
  async run(work) {
    this.cancel();
    const control = new AbortController();
    this.control = control;
    this.bar.removeAttribute("value");
    this.text.textContent = "";
    this.timer = setTimeout(() => (this.going.hidden = false), SOON);
    try {
      await work(control.signal, (done, of, text = `${done} of ${of}`) => {
        if (of) this.bar.value = done / of;
        this.text.textContent = text;
      });
      if (this.control === control) this.error.hidden = true;
    } catch (error) {
      if (control.signal.aborted) return;
      this.say(error);
    } finally {
      if (this.control === control) this.rest();
    }
  }

  // Whether a form can be asked for; if not, it says what is wrong.
  accepts(form) {
    const wrong = wrongIn(form);
    if (wrong === null) return true;
    this.cancel();
    this.say(new Mistake(wrong));
    return false;
  }

  cancel() {
    this.control?.abort();
    this.rest();
  }

  say(error) {
    if (!(error instanceof Mistake)) console.error(error);
    rewrite(this.error, error.message);
    this.error.hidden = false;
  }

  rest() {
    clearTimeout(this.timer);
    this.going.hidden = true;
    this.control = null;
  }
}
