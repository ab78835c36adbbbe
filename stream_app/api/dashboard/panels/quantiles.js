// The panel of the value's quantiles over time. Each point is about the events of one slice of time; its interval
// comes from the band around their CDF.

import { Panel } from "../panel.js";
import { longest } from "../ranges.js";
import { level } from "../state.js";
import { AMOUNTS } from "../words.js";

const SLICES = 32, WANTED = [0.5, 0.9];
const NAMES = { 0.5: "median", 0.9: "90 % below" };

export class Quantiles extends Panel {
  constructor(page) {
    super(page, "quantiles", "Quantiles over time");
    this.band = this.chart({ stepped: true, numbers: AMOUNTS, counted: "Value" });
  }

  static applies(page) {
    return Boolean(page.detail.axes?.edges);
  }

  async ask(page) {
    return page.ask("quantiles", { ...page.slices(SLICES), q: WANTED });
  }

  show(answer, page) {
    const { start, end, seq, quantiles } = answer;
    const lines = quantiles.map(({ q, value, lower, upper }, i) => ({ name: NAMES[q], value, lower, upper, quiet: i > 0 }));
    this.heading.textContent = `Quantiles of ${page.field}`;
    const bin = end.length ? longest(start, end) : page.binSeconds;
    const levels = page.rules.filter((one) => one.measure === "quantile" && WANTED.includes(one.level)).map((one) => level(one, one.threshold));
    this.band.show({ start, end, seq, lines, levels, marks: page.marks }, bin, page.domain());
  }
}
