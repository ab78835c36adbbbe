// The reader's choices on a stream's page, and values that follow from them. The address of the page contains the
// choices, so a copied address shows the same page.

import { numbered } from "./annotations.js";
import { get, streamPath } from "./api.js";
import { commonBin, edgesAround, hasOtherBins } from "./earlier_bins.js";
import { isPattern, nameOf } from "./key_choice.js";
import { measuresOf } from "./measures.js";
import { CALENDAR, chooseStep, presets, snapRange } from "./ranges.js";
import { seconds, timesOf, utc } from "./times.js";
import { count } from "./words.js";
import { chosenZone, rememberZone } from "./zone.js";

const DAY = 86400;
const VIEWS = ["unbiased", "first_published", "consistent"];

export class StreamPage {
  // Args: speak(text), passes a text to screen readers; changed(chosen), is called when the reader chose something.
  constructor(location, { speak, changed }) {
    const asked = new URL(location).searchParams;
    const number = (name) => (asked.has(name) && Number.isFinite(Number(asked.get(name))) ? Number(asked.get(name)) : null);
    this.lookedUp = null; // the promise of the stream for which its keys were looked up
    this.asked = asked; // what the address asks for; null once the reader has chosen something
    this.stream = decodeURIComponent(new URL(location).pathname.split("/")[2] ?? "");
    this.speak = speak;
    this.changed = changed;
    this.detail = null; // the answer of /v1/streams/{s}
    this.alerts = [];
    this.transitions = []; // changes of alert rules, oldest first
    this.transitionsKept = 0; // the largest number of changes that the service keeps
    this.seq = 0;
    this.preset = asked.get("range") ?? "all";
    this.closer = readRange(asked.get("from"), asked.get("to"));
    this.view = VIEWS.includes(asked.get("view")) ? asked.get("view") : "unbiased";
    this.keys = asked.getAll("key"); // the chosen keys; none: all keys together
    this.by = asked.get("by"); // the key field by which the panel of keys groups; "*": each combination
    this.show = asked.get("show"); // what the charts show, if the stream has a sum
    this.compare = asked.get("compare") === "1";
    this.bars = asked.get("bars"); // the calendar unit of each bar, of CALENDAR; others: a length that fits the range
    this.window = number("window");
    this.ending = asked.get("ending"); // end of the chosen tumbling window; null: the last window in the range
    this.histogram = asked.get("of"); // name of the chosen histogram of that window
    this.cumulative = asked.get("curve") === "cumulative";
    this.epsilon = number("epsilon");
    this.zone = chosenZone(location); // null: the one that the service shows by default
  }

  get binSeconds() {
    return this.detail.bin_seconds;
  }

  // Return the object that writes instants as text.
  get times() {
    return timesOf(this.detail, this.zone ?? this.detail.display_timezone);
  }

  // Return the object that converts between instants and bins.
  get bins() {
    return this.times.bins;
  }

  // Return the name of the stream for readers.
  get title() {
    return this.detail?.title ?? this.stream;
  }

  // Return the name of the stream for readers, with the chosen keys.
  get fullTitle() {
    return [this.title, this.group()].filter(Boolean).join(" · ");
  }

  // Return the name of the chosen keys; empty for all keys. Args: most, the largest number of values that are named.
  group(most = 3) {
    return nameOf(this.detail?.axes, this.keys, most);
  }

  // Return what the charts show: of a stream with a sum its total, mean or count.
  get measures() {
    return measuresOf(this.detail);
  }

  get measure() {
    return this.measures.find(({ name }) => name === this.show) ?? this.measures[0];
  }

  // Return a text that differs for choices that show other numbers.
  get choice() {
    return JSON.stringify([this.keys, this.measure.name, this.view, this.preset, this.closer]);
  }

  // Return whether all values stay as they were first published.
  get neverRevised() {
    return this.detail.never_revised;
  }

  // Return the name of the stream's value.
  get field() {
    return this.detail.axes?.value_field ?? "value";
  }

  // Return what charts count, as a heading begins with it: "Events".
  get noun() {
    return this.detail.noun.replace(/^./, (letter) => letter.toUpperCase());
  }

  whole() {
    const { start, released_until: until, history } = this.detail;
    const first = this.keys.length && history ? history[0].start : start; // chosen keys may have counts before the total
    return { start: seconds(first), end: seconds(until) };
  }

  // Return whether the page has one chart that is higher than the others.
  get hasStrongChart() {
    return true;
  }

  // Return whether the chosen range is only a part of the stream.
  get isPart() {
    const [whole, { start, end }] = [this.whole(), this.range()];
    return start > whole.start || end < whole.end;
  }

  range() {
    const { start, end } = this.#chosenRange();
    return hasOtherBins(this.detail) ? { start: this.edges(start)[0], end: this.edges(end)[1] } : { start, end };
  }

  // Return the edges of bins around an instant, also of earlier streams with other bins.
  edges(at) {
    return edgesAround(this.detail, this.bins, at);
  }

  // Return the shortest time that fits all bins from an instant on, in seconds; null for calendar days.
  binFrom(start) {
    return commonBin(this.detail, start).length;
  }

  // Return the time of which windows are multiples, in seconds: it fits all bins of the chosen range.
  get windowBin() {
    return this.binFrom(this.range().start) ?? DAY;
  }

  #chosenRange() {
    const whole = this.whole();
    if (this.closer) {
      const [start, end] = [Math.max(this.closer[0], whole.start), Math.min(this.closer[1], whole.end)];
      if (start < end) return { start, end };
    }
    const preset = presets(whole, this.bins.length).find((one) => one.name === this.preset);
    if (!preset?.seconds) return whole;
    return { start: Math.max(this.before(whole.end, preset.seconds / this.bins.length), whole.start), end: whole.end };
  }

  // Return the instant that is a number of bins before the start of a bin.
  before(edge, bins) {
    return this.bins.start(this.bins.of(edge) - bins);
  }

  // Return the range and a step, in bins, for the service to divide it into slices that start at round times. The
  // slices cover the whole range; the first and the last may be shorter. Args: the largest number of slices.
  slices(most) {
    const range = this.range();
    const { length: bin, zone } = commonBin(this.detail, range.start);
    const step = chooseStep(range, bin, most);
    if (bin === null) return { ...range, days: step, timezone: zone };
    const bins = step * bin / this.binSeconds;
    return this.#inDays(range, bins) ?? { ...range, step: bins, aligned: true };
  }

  // Return the time zone of the calendar units that bars can count; null if its days begin inside bins.
  get calendarZone() {
    if (this.binSeconds === null || this.hasWholeDays(this.range())) return this.times.zone;
    return DAY % this.binSeconds ? null : "UTC";
  }

  // Return the range in the calendar units that the reader chose; null for a length that fits the range.
  calendar() {
    const step = Object.hasOwn(CALENDAR, this.bars ?? "") ? CALENDAR[this.bars] : null;
    return step && this.calendarZone ? { ...this.range(), ...step, timezone: this.calendarZone } : null;
  }

  // Return a range and a step, in bins, that divide it into equal groups, which start at round times. The range may be
  // a little shorter than the chosen one. Args: the largest number of groups.
  groups(most) {
    const range = this.range();
    const { length: bin, zone } = commonBin(this.detail, range.start);
    if (bin === null && this.binSeconds !== null) return { ...range, days: chooseStep(range, null, most), timezone: zone };
    const step = chooseStep(range, bin, most) * (bin === null ? 1 : bin / this.binSeconds);
    const days = this.measure.name === "count" ? this.#wholeDays(range) : null; // sums and means have groups of bins only
    return this.#inDays(days, step) ?? { ...snapRange(range, step * (this.binSeconds ?? 0), bin, this.whole().start), step };
  }

  // Return a range and a number of days of the reader's time zone, in place of a step of whole days of UTC. Return
  // null if the step is shorter than a day, or a day there begins inside a bin.
  #inDays(range, step) {
    const length = step * (this.binSeconds ?? 0);
    if (!range || !length || length % DAY || !this.hasWholeDays(range)) return null;
    return { ...range, days: length / DAY, timezone: this.times.zone };
  }

  // Return whether every day of the reader's time zone that begins within a range begins at the edge of a bin.
  hasWholeDays(range) {
    return this.times.hasWholeDays(range, (at) => this.edges(at)[0]);
  }

  // Return the whole days of a range; null if there are none.
  #wholeDays({ start, end }) {
    const { days } = this.times;
    if (!days) return null;
    const [first, last] = [days.of(start), days.of(end)];
    const from = days.start(first) === start ? start : days.start(first + 1);
    return from < days.start(last) ? { start: from, end: days.start(last) } : null;
  }

  // Return the ends of the charts' axis of time.
  domain() {
    return this.range();
  }

  // Return the id of a part of the page.
  place(name) {
    return name;
  }

  // Return the name of a chart for screen readers. Args: title, its heading.
  heads(title) {
    return title;
  }

  // Return the texts beside times that the operator has written.
  get annotations() {
    return numbered(this.detail.annotations);
  }

  async ask(path, query) {
    return get(`${streamPath(this.stream)}/${path}`, { key: this.keys, ...query });
  }

  // Request points of what the charts show. Args: the query of /series, without the view; inner, of a mean left out.
  async points({ inner, ...query }) {
    const { measure, view } = this;
    if (measure.name === "count") return this.ask(measure.series, { ...query, view, inner });
    const answer = await this.ask(measure.series, measure.name === "sum" ? { ...query, inner } : query);
    return { ...answer, note: `${answer.meaning} ${answer.note}` };
  }

  // Return the alert rules about what is shown: counts, totals or means, of all events or of exactly the chosen keys.
  get rules() {
    const chosen = new Set(this.keys);
    const about = (measure) => ({ total: "sum", mean: "mean" })[measure] ?? "count";
    const { axes } = this.detail;
    const allBut = (others) => !others.some((key) => chosen.has(key) || isPattern(axes, key)) && chosen.size + others.length === axes.keys;
    const exactly = (keys) => keys.length === chosen.size && keys.every((key) => chosen.has(key));
    const fits = ({ keys, not_keys: others }) => (others.length ? allBut(others) : exactly(keys));
    return this.alerts.filter((one) => about(one.measure) === this.measure.name && fits(one));
  }

  // Return the changes of these rules as marks for charts over time.
  get marks() {
    const shown = new Set(this.rules.map(({ rule }) => rule));
    return this.transitions.filter(({ rule }) => shown.has(rule)).map(({ at, rule, kind }) => ({ at, name: rule, kind }));
  }

  // Return the thresholds of these rules for a chart. Args: fits(rule), whether the chart can show the rule's
  // threshold; scale, converts events to the chart's unit.
  levels(fits, scale = 1) {
    return this.rules.filter((one) => one.threshold_events !== null && fits(one)).map((one) => level(one, one.threshold_events * scale));
  }

  choose(chosen) {
    this.asked = null;
    if ("closer" in chosen) this.ending = null;
    if ("zone" in chosen) rememberZone(chosen.zone);
    Object.assign(this, chosen);
    this.#settleView();
    this.remember();
    this.changed(chosen);
  }

  // Take a new answer of /v1/streams/{s}. Leave out keys that the stream does not have.
  async take(detail) {
    const { axes, windows, strategy_hash: promised } = detail;
    if (promised !== this.lookedUp) {
      const histogram = this.histogram === null ? [] : [this.histogram];
      [this.keys, [this.histogram = null]] = await Promise.all([this.#known(axes, this.keys), this.#known(windows, histogram)]);
    }
    this.lookedUp = promised;
    this.detail = detail;
    this.#settleView();
  }

  // Return those of some names that the stream has. Args: listed, with the number of its keys.
  async #known(listed, names) {
    return listed?.keys && names.length ? (await this.ask("keys/list", { key: names })).keys : [];
  }

  // Values as first published exist for the count of all keys together only.
  #settleView() {
    if ((this.keys.length || this.measure.name !== "count") && this.view === "first_published") this.view = "unbiased";
  }

  // Show only a part of the range. With null, show the range that the reader chose before.
  zoom(start, end) {
    if (start === null) return this.closer && this.choose({ closer: null });
    return this.choose({ closer: this.#widened(this.#onEdges(start, end)) });
  }

  remember() {
    const url = new URL(window.location.href);
    const put = (name, value) => (value === null || value === "" ? url.searchParams.delete(name) : url.searchParams.set(name, value));
    const instant = (at) => utc(at).replace(/\.000Z$/, "Z");
    put("range", this.preset === "all" ? null : this.preset);
    put("from", this.closer && instant(this.closer[0]));
    put("to", this.closer && instant(this.closer[1]));
    put("view", this.view === "unbiased" ? null : this.view);
    url.searchParams.delete("key");
    this.keys.forEach((key) => url.searchParams.append("key", key));
    put("by", this.by);
    put("show", this.measure === this.measures[0] ? null : this.measure.name);
    put("compare", this.compare ? "1" : null);
    put("bars", Object.hasOwn(CALENDAR, this.bars ?? "") ? this.bars : null);
    put("window", this.window);
    put("ending", this.ending);
    put("of", this.histogram);
    put("curve", this.cumulative ? "cumulative" : null);
    put("epsilon", this.epsilon);
    put("tz", this.zone === this.detail.display_timezone ? null : this.zone);
    window.history.replaceState(null, "", url);
  }

  #onEdges(start, end) {
    const { bins } = this;
    const [first, last] = [bins.of(start), bins.of(end)];
    return [bins.start(first), bins.start(last) < end ? bins.start(last + 1) : end];
  }

  #widened([start, end]) {
    const { start: first, end: last } = this.whole();
    if (this.bins.of(end) - this.bins.of(start) >= 2) return [start, end];
    return [Math.max(this.before(start, 2), first), Math.min(this.before(start, -2), last)];
  }
}

export function level({ rule, comparison }, value) {
  const short = `${comparison} ${Number.isInteger(value) ? count(value) : +value.toPrecision(4)}`;
  return { value, name: `${rule}: ${short}`, short };
}

function readRange(from, to) {
  const [start, end] = [seconds(from ?? ""), seconds(to ?? "")];
  return start < end ? [start, end] : null;
}
