// Moves through the days of the year: play, pause, speed and a slider.

import { at, say } from "../../stream_app/api/dashboard/elements.js";

export class Player {
  // Args: first and last, days since the start of the year; word(day), its date; show(day), draws the page as of the
  // end of a day, and returns when that is done.
  constructor({ first, last, word, show }) {
    Object.assign(this, { first, last, word, show, day: last, playing: false, drawing: null, wanted: null });
    Object.assign(at("day"), { min: first, max: last, step: 1 });
    at("day").addEventListener("input", () => { this.pause(); this.move(Number(at("day").value)); });
    at("play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
  }

  play() {
    if (this.day >= this.last) this.move(this.first);
    this.playing = true;
    this.#label();
    let [before, passed] = [null, this.day];
    const step = (now) => {
      if (!this.playing) return;
      // A page that was hidden, or draws slowly, goes on from where it is.
      passed = this.day + Math.min((now - (before ?? now)) / 1000, 0.25) * Number(at("speed").value) + (passed - Math.floor(passed));
      before = now;
      if (Math.floor(passed) > this.day) this.move(Math.min(Math.floor(passed), this.last));
      if (this.day >= this.last) this.pause();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  pause() {
    this.playing = false;
    this.#label();
  }

  // Show a day. While the page draws one, only the newest of those that are asked for is kept. Returns when the page
  // has drawn the newest one.
  move(day) {
    this.day = day;
    at("day").value = String(day);
    at("day").setAttribute("aria-valuetext", this.word(day));
    say(at("date"), this.word(day));
    this.wanted = day;
    this.drawing ??= this.#draw();
    return this.drawing;
  }

  async #draw() {
    while (this.wanted !== null) {
      const next = this.wanted;
      this.wanted = null;
      await this.show(next);
    }
    this.drawing = null;
    this.#label();
  }

  #label() {
    const name = this.playing ? "Pause" : this.day >= this.last ? "Play again" : "Play";
    at("play").dataset.playing = String(this.playing);
    say(at("play-name"), name);
  }
}
