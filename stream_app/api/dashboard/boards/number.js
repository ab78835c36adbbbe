// The panel of one number: the events, the total or the mean of the chosen range, with its interval.

import { inBetween, make, showNumber } from "../elements.js";
import { gapsInWords } from "../gaps.js";
import { Panel } from "../panel.js";
import { grid } from "../tables.js";
import { seconds } from "../times.js";
import { percent, sentence } from "../words.js";

export class OneNumber extends Panel {
  constructor(page) {
    super(page, "number", page.measure.title);
    this.value = make("p", { className: "number", dataset: { testid: "value" } });
    this.interval = make("p", { className: "interval" });
    this.when = make("p", { className: "muted" });
    this.body.append(this.value, this.interval, this.when);
    this.saving.lastElementChild.remove(); // remove the PNG button, because a number has no picture
  }

  async ask(page) {
    const answer = await page.ask(page.measure.single, page.range());
    const isSaid = page.measure.name === "count" && page.detail.counts === "events"; // the page says once which events count
    const gaps = gapsInWords(answer.unmeasured, page.times);
    return { ...answer, note: isSaid ? "" : `${sentence(answer.counted)}.`, urgent: gaps };
  }

  show(answer, page) {
    const { measure, times } = page;
    const said = this.#said();
    this.heading.textContent = measure.title;
    showNumber(this.value, said.value);
    this.interval.replaceChildren(...inBetween([said.lower, said.upper]), ` (${percent(answer.confidence)})`);
    this.when.textContent = times.onPage(times.period(seconds(answer.start), seconds(answer.end)));
  }

  #said() {
    const { answer, page: { measure } } = this;
    const [lower, upper] = measure.numbers.between(...answer.interval);
    return { value: measure.enough?.(answer) === false ? measure.numbers.none : measure.numbers.value(answer.value, answer.interval), lower, upper };
  }

  table() {
    const { value, lower, upper } = this.#said();
    return grid(this.when.textContent, [this.page.measure.counted, "At least", "At most"], [[value, lower, upper]]);
  }

  csv() {
    const { start, end, value, interval } = this.answer;
    return this.words(["start", "end", "value", "lower", "upper", "private"], [[start, end, value, ...interval, this.answer.private]]);
  }
}
