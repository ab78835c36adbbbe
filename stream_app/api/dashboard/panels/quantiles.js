// The panel of the value's quantiles over time. Each point is about the events of one slice of time; its interval
// comes from the band around their CDF.

import { Panel } from "../panel.js";
import { longest } from "../ranges.js";
import { level } from "../state.js";
import { AMOUNTS, beyond } from "../words.js";

const SLICES = 32, WANTED = [0.5, 0.9];
const NUMBERS = { ...AMOUNTS, none: "too few events" };
const NAMES = { 0.5: "median", 0.9: "90 % below" };

export class Quantiles extends Panel {
  constructor(page) {
    super(page, "quantiles", "Quantiles over time");
    this.band = this.chart({ stepped: true, numbers: NUMBERS, counted: "Value" });
  }

  static applies(page) {
    return Boolean(page.detail.axes?.edges);
  }

  async ask(page) {
    const answer = await page.ask("quantiles", { ...page.slices(SLICES), q: WANTED });
    const isPartly = answer.quantiles.some((one) => one.value.some((_, i) => !tells(one, i, page)));
    return { ...answer, note: [answer.note, isPartly ? "A line has gaps where a slice has too few events to tell." : "", beyond(page.detail.axes.edges)].filter(Boolean).join(" ") };
  }

  show(answer, page) {
    const { start, end, seq, quantiles } = answer;
    const lines = quantiles.map((one, place) => {
      const told = (column) => column.map((value, i) => (tells(one, i, page) ? value : null));
      return { name: NAMES[one.q], value: told(one.value), lower: told(one.lower), upper: told(one.upper), quiet: place > 0 };
    });
    this.heading.textContent = `Quantiles of ${page.field}`;
    const bin = end.length ? longest(start, end) : page.binSeconds;
    const levels = page.rules.filter((one) => one.measure === "quantile" && WANTED.includes(one.level)).map((one) => level(one, one.threshold));
    this.band.show({ start, end, seq, lines, levels, marks: page.marks, numbers: NUMBERS }, bin, page.domain());
  }
}

// Return whether a quantile of a slice tells anything: its interval is smaller than the whole axis of values.
function tells({ value, lower, upper }, i, { detail: { axes: { edges } } }) {
  return value[i] !== null && (lower[i] > edges[0] || upper[i] < edges.at(-1));
}
