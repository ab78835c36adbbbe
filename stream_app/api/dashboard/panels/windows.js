// The panel of one tumbling window. It shows the window's histogram, which was released with the window's last
// bin, or the cumulative counts.

import { bold, make } from "../elements.js";
import { Panel } from "../panel.js";
import { grid } from "../tables.js";
import { seconds } from "../times.js";
import { amount, count, error, between, length, spread, valueRange } from "../words.js";

const MOST_LISTED = 1000; // keys to choose from; an address names any other one
const WANTED = [0.5, 0.9];
const NAMES = { 0.5: "median", 0.9: "90 % below" };

export class Windows extends Panel {
  constructor(page) {
    super(page, "windows", "Window", about(page));
    const { keys } = page.detail.windows;
    this.key = make("select", { id: "windows-key" }); // filled by the first question
    this.curve = make("select", { id: "windows-curve" }, new Option("Histogram", "histogram"), new Option("Cumulative", "cumulative"));
    this.earlier = make("button", { type: "button", disabled: true }, "Earlier");
    this.later = make("button", { type: "button", disabled: true }, "Later");
    this.last = make("button", { type: "button" }, "Last");
    this.curvePicker = make("label", { className: "picker" }, make("span", {}, "Show"), this.curve);
    this.tools.append(
      make("label", { className: "picker", hidden: !keys }, make("span", {}, "Key"), this.key),
      this.curvePicker,
      make("div", { className: "steps", role: "group", "aria-label": "Window" }, this.earlier, this.later, this.last));
    this.key.addEventListener("change", () => page.choose({ histogram: this.key.value }));
    this.curve.addEventListener("change", () => page.choose({ cumulative: this.curve.value === "cumulative" }));
    this.earlier.addEventListener("click", () => this.#step(this.answer.earlier));
    this.later.addEventListener("click", () => this.#step(this.answer.later));
    this.last.addEventListener("click", () => this.#step(null));
    this.which = make("p", { className: "difference", id: "windows-which", "aria-live": "polite" });
    this.readout.before(this.which);
    this.counts = this.#chart("windows", { stepped: true, fromZero: true });
    this.running = this.#chart("windows-cumulative", {});
    this.band = this.counts;
  }

  static applies(page) {
    return Boolean(page.detail.windows);
  }

  async ask(page) {
    const { keys, value_field: field } = page.detail.windows;
    const which = page.ending === null ? { until: page.range().end } : { end: page.ending };
    if (keys && !this.key.length) await this.#listKeys(page);
    const key = keys && (page.histogram ?? this.key.options[0].value);
    if (key) this.key.value = key;
    return page.ask("window", { ...which, key, q: field ? WANTED : [] });
  }

  show(answer, page) {
    const cumulative = page.cumulative && !answer.keys;
    this.curvePicker.hidden = Boolean(answer.keys);
    this.curve.value = cumulative ? "cumulative" : "histogram";
    this.#offerSteps(answer);
    this.heading.textContent = `${what(answer, page)} in a window`;
    const { times } = page;
    const said = [bold(times.onPage(times.period(seconds(answer.start), seconds(answer.end)))), ...this.#words(answer)];
    // Screen readers read only the text that has changed.
    if (this.which.textContent !== said.map((part) => part.textContent ?? part).join("")) this.which.replaceChildren(...said);
    this.counts.host.hidden = cumulative;
    this.running.host.hidden = !cumulative;
    this.band = cumulative ? this.running : this.counts;
    const unknown = answer.count.map(() => null);
    const { low, upto, seq } = answer;
    const size = answer.count.length;
    const end = upto ?? answer.count.map((_, i) => i + (cumulative ? 1 : 1.5));
    const start = upto ? [low, ...upto.slice(0, -1)] : answer.count.map((_, i) => i + 0.5);
    const line = cumulative
      ? { value: answer.consistent, lower: answer.lower ?? unknown, upper: answer.upper ?? unknown }
      : { value: answer.count, lower: answer.count_lower ?? unknown, upper: answer.count_upper ?? unknown };
    const domain = upto ? { start: low, end: upto[size - 1] } : { start: 0.5, end: size + 0.5 };
    this.band.show({ start: cumulative ? null : start, end, lines: [{ name: "", ...line }], seq }, null, domain);
  }

  restyle() {
    this.counts.restyle();
    this.running.restyle();
  }

  table() {
    const { heads, rows } = this.#rows();
    const said = rows.map(([place, value, low, high, stderr, , least, most, sum]) => [
      place, count(value), ...bounds(low, high), stderr === null ? "not known" : error(stderr), count(sum), ...bounds(least, most)]);
    return grid(`All ${count(rows.length)} counts of the window`, heads, said);
  }

  csv() {
    const { rows } = this.#rows();
    const heads = ["place", "count", "count_lower", "count_upper", "stderr", "cumulative", "lower", "upper", "consistent", "private"];
    return this.words(heads, rows.map((row) => [...row, this.answer.private]));
  }

  caption() {
    const { start, end, mechanism, epsilon, note } = this.answer;
    const { times } = this.page;
    return [
      `${this.page.stream}${this.answer.key === null ? "" : `, ${this.answer.key}`}: ${this.heading.textContent}`,
      `${times.alone(times.period(seconds(start), seconds(end)))}, released once by ${mechanism}, ε\u00a0=\u00a0${epsilon}.`,
      note,
    ];
  }

  #chart(name, options) {
    const places = this.page.detail.windows.value_field ? {} : { place: (number) => this.#place(number) };
    return this.chart({ value: true, counted: this.page.noun, ...places, ...options }, name);
  }

  // Return the text of a place on an axis of keys or ranks. Places count from 1.
  #place(number) {
    const { keys, count: counts } = this.answer ?? { count: [] };
    if (number < 1 || number > counts.length) return "";
    return keys ? keys[number - 1] : `rank ${number}`;
  }

  #rows() {
    const { low, upto, count: counts, count_lower: below, count_upper: above, stderr, cumulative, consistent, lower, upper } = this.answer;
    const from = upto ? [low, ...upto] : null;
    const place = (i) => (from ? valueRange(from, i) : this.#place(i + 1));
    const at = (column, i) => (column ? column[i] : null);
    return {
      heads: [from ? "Value" : "Place", "Count", "At least", "At most", "Standard error", "Cumulative", "At least", "At most"],
      rows: counts.map((value, i) => [place(i), value, at(below, i), at(above, i), at(stderr, i), cumulative[i], at(lower, i), at(upper, i), consistent[i]]),
    };
  }

  #words({ quantiles, consistent, lower, upper }) {
    const last = consistent.length - 1;
    const total = lower ? ` (${between(lower[last], upper[last]).join(" to ")})` : "";
    const each = quantiles.map(({ q, value, interval }) =>
      [`${NAMES[q]} `, bold(value === null ? "cannot be told" : amount(value)), interval ? ` (${spread(...interval).join(" to ")})` : ""]);
    return [": ", bold(count(consistent[last])), ` ${this.page.detail.noun}${total}`, ...each.flatMap((words) => [", ", ...words])];
  }

  async #listKeys(page) {
    const { keys, listed } = await page.ask("keys/list", { limit: MOST_LISTED });
    const other = page.histogram === null || keys.includes(page.histogram) ? [] : [page.histogram];
    this.key.replaceChildren(...[...keys, ...other].map((key) => new Option(key, key)));
    if (listed <= MOST_LISTED) return;
    this.key.append(make("option", { disabled: true }, `${count(listed - MOST_LISTED)} more: write &of=KEY in the address`));
  }

  #step(ending) {
    this.page.choose({ ending });
  }

  // If the button with the focus becomes disabled, focus the other one.
  #offerSteps({ earlier, later }) {
    const focused = document.activeElement;
    this.earlier.disabled = earlier === null;
    this.later.disabled = later === null;
    if (focused?.disabled && [this.earlier, this.later].includes(focused)) (focused === this.later ? this.earlier : this.last).focus();
  }
}

const bounds = (low, high) => (low === null ? ["not known", "not known"] : between(low, high));

function what(answer, page) {
  const { value_field: field } = page.detail.windows;
  const whose = answer.key === null ? "" : `, ${answer.key},`;
  if (field) return `Histogram of ${field}${whose}`;
  return answer.sorted ? "Load over keys, in rising order," : "Load over keys";
}

function about({ detail, bins: { length: lengthOfBin } }) {
  const { bins, epsilon, mechanism, options } = detail.windows;
  const set = Object.entries(options).map(([name, value]) => `${name} ${value}`).join(", ");
  const long = length(bins * lengthOfBin);
  const said = `Windows of ${long.replace(/^(?=[a-z])/, "a ")}, each released once, with its last bin, by the mechanism ${mechanism}`;
  return `${said}${set && ` (${set})`}. It costs ε\u00a0=\u00a0${epsilon} of the stream's ${detail.epsilon} per epoch; the rest counts all events over time.`;
}
