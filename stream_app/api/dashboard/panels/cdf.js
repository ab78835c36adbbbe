// The panel of the value's distribution in the chosen range: cumulative counts, and one band for all of them.

import { make } from "../elements.js";
import { Panel } from "../panel.js";
import { amount, beyond, count } from "../words.js";

export class Cdf extends Panel {
  constructor(page) {
    super(page, "cdf", "Distribution", `${page.noun} with a value up to each point. The band holds the whole true curve at once with 95 % probability. The line is the nearest curve of whole numbers in the band that never falls. Choose a range of time above, or by drag over any chart of time.`);
    this.band = this.chart({ value: true, counted: page.noun, across: "Value" });
    this.range = make("p", { className: "muted" });
    this.tools.append(this.range);
  }

  static applies(page) {
    return Boolean(page.detail.axes?.edges);
  }

  async ask(page) {
    return { ...await page.ask("cdf", page.range()), note: beyond(page.detail.axes.edges) };
  }

  show(answer, page) {
    const { upto, consistent, lower, upper, seq } = answer;
    const { start, end } = page.range();
    this.heading.textContent = `Distribution of ${page.field}`;
    this.range.textContent = page.times.onPage(page.times.period(start, end));
    const lines = [{ name: "", value: consistent, lower, upper }];
    this.band.show({ start: null, end: upto, lines, seq }, null, { start: page.detail.axes.edges[0], end: upto[upto.length - 1] });
  }

  csv() {
    const { upto, value, lower, upper, stderr, consistent } = this.answer;
    const rows = upto.map((edge, i) => [edge, value[i], stderr[i], lower[i], upper[i], consistent[i], this.answer.private]);
    return this.words(["upto", "value", "stderr", "lower", "upper", "consistent", "private"], rows);
  }

  caption() {
    const [title, range] = super.caption();
    const last = this.answer.consistent.length - 1;
    const { noun } = this.page.detail;
    return [title, range, `One band for the whole curve, 95 %. ${count(this.answer.consistent[last])} ${noun} up to ${amount(this.answer.upto[last])}.`, ...this.warnings()];
  }
}
