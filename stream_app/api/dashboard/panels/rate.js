// The panel of the rate: events per time in a sliding window. The reader chooses the window's length.

import { make } from "../elements.js";
import { Panel, pictureOf } from "../panel.js";
import { pointsFor, windows } from "../ranges.js";
import { AMOUNTS, length } from "../words.js";

const one = (seconds) => length(seconds).replace(/^(?=[a-z])/, "1 "); // writes "day" as "1 day"
const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

export class Rate extends Panel {
  constructor(page) {
    super(page, "rate", "Rate");
    this.band = this.chart({ numbers: AMOUNTS, counted: "Rate", fromZero: true });
    this.select = make("select", { id: page.place("rate-window") });
    this.select.addEventListener("change", () => page.choose({ window: Number(this.select.value) }));
    this.tools.append(make("label", { className: "picker" }, make("span", {}, "Window"), this.select));
  }

  static applies(page) {
    return windows(page.whole(), page.bins.length, page.windowBin).length > 0;
  }

  async ask(page) {
    this.window = this.#window(page);
    const { start, end } = page.range();
    const bins = this.window / page.bins.length;
    const from = Math.max(page.edges(page.before(start, bins - 1))[0], page.whole().start);
    const answer = await page.points({ kind: "window", inner: true, window: bins, start: from, end, points: pointsFor(this.body.clientWidth, page.measure.most) });
    return { ...answer, note: answer.note + page.times.lengthNote };
  }

  show(answer, page) {
    // Give the rate per day only if bins are days. A window of some hours does not tell how many events a day has.
    const [unit, name] = UNITS.find(([seconds]) => seconds <= this.window && (seconds < 86400 || page.bins.length >= 86400));
    const { measure } = page;
    const scale = measure.rates ? unit / this.window : 1;
    const scaled = (column) => column?.map((value) => (value === null ? null : value * scale));
    this.heading.textContent = `${measure.title}${measure.rates ? ` per ${name}, average of` : " over"} the last ${length(this.window)}`;
    const picture = { ...pictureOf(answer, page), counted: measure.rates ? "Rate" : measure.counted };
    if (measure.name === "count") picture.numbers = AMOUNTS;
    picture.lines = picture.lines.map((line) => ({ ...line, value: scaled(line.value), lower: scaled(line.lower), upper: scaled(line.upper), inner: line.inner?.map(scaled) }));
    picture.stderr = scaled(answer.stderr);
    picture.levels = page.levels(({ measure, window_bins: bins }) => ["rate", "sum"].includes(measure) && bins === answer.window, scale);
    this.band.show(picture, page.binSeconds, page.domain());
  }

  #window(page) {
    const offered = windows(page.whole(), page.bins.length, page.windowBin);
    const chosen = offered.includes(page.window) ? page.window : offered[Math.min(1, offered.length - 1)];
    if (this.select.dataset.offered !== String(offered)) {
      this.select.dataset.offered = String(offered);
      this.select.replaceChildren(...offered.map((seconds) => new Option(one(seconds), seconds)));
    }
    this.select.value = String(chosen);
    return chosen;
  }
}
