// What the panels of a board are about: one stream or key, or several in one chart. Panels use them as they use the page
// of a stream.

import { numbered } from "../annotations.js";
import { ApiError } from "../api.js";
import { commonMultiple } from "../earlier_bins.js";
import { chooseStep, roundTime } from "../ranges.js";
import { StreamPage } from "../state.js";
import { timesOf } from "../times.js";
import { length } from "../words.js";

// Return the stream and the key that a line names: "clicks/FR" is the key FR of clicks. The key may be null.
export function partsOf(line) {
  const slash = line.indexOf("/");
  return slash < 0 ? [line, null] : [line.slice(0, slash), line.slice(slash + 1)];
}

// One line of a panel. Args: board, with the range and the annotations; panel, its declaration; line, "clicks/FR".
export class BoardLine extends StreamPage {
  constructor(board, panel, line) {
    const [stream, key] = partsOf(line);
    const query = new URLSearchParams({ show: panel.measure });
    if (key !== null) query.set("key", key);
    const zone = new URL(window.location.href).searchParams.get("tz");
    if (zone) query.set("tz", zone);
    super(new URL(`/streams/${encodeURIComponent(stream)}?${query}`, window.location.href).href, { speak: board.speak, changed: () => board.load(panel.name) });
    Object.assign(this, { board, panel, line });
  }

  // Return the name of the line for readers: "Clicks in the shop · FR".
  get subject() {
    const [, key] = partsOf(this.line);
    return [this.title, key].filter((one) => one !== null).join(" · ");
  }

  get hasStrongChart() {
    return false;
  }

  get annotations() {
    return this.board.annotationsOf([this]);
  }

  place(name) {
    return `${this.panel.name}-${name}`;
  }

  heads(title) {
    return `${this.subject}: ${title}`;
  }

  domain() {
    return this.board.rangeOf(this.panel, [this]);
  }

  // Return the part of the board's range for which the stream has values, as whole bins.
  range() {
    const { start, end } = this.domain();
    const whole = this.whole();
    const [from, to] = [Math.max(this.edges(start)[0], whole.start), Math.min(this.edges(end)[1], whole.end)];
    if (from < to) return { start: from, end: to };
    throw new ApiError(`nothing of ${this.title} is released in this range, its values are of ${this.times.onPage(this.times.period(whole.start, whole.end))}`, 400);
  }

  // A reader's choice changes the panel only. The address of the page stays that of the board.
  choose(chosen) {
    if ("keys" in chosen) return this.board.openStream(this.stream, chosen.keys);
    Object.assign(this, chosen);
    return this.changed(chosen);
  }

  zoom(start, end) {
    this.board.zoom(start, end);
  }
}

// Several lines in one chart. All points count equal lengths of time, whatever the bins of the streams are.
export class Group {
  constructor(board, panel, lines) {
    Object.assign(this, { board, panel, lines, keys: [], speak: board.speak });
  }

  get stream() {
    return this.panel.name;
  }

  get fullTitle() {
    return this.lines.map(({ subject }) => subject).join(", ");
  }

  // Return the facts that all lines share.
  get detail() {
    const [{ detail }] = this.lines;
    const said = (name) => this.lines.filter((line) => line.detail[name]).map((line) => `${line.subject}: ${line.detail[name]}`).join(" ");
    return { ...detail, warning: said("warning"), shape: said("shape"), bin_seconds: this.common, unmeasured: [] };
  }

  // Return the length of the shortest time that is a whole number of bins of every line, in seconds; null for days.
  get common() {
    const { start } = this.domain();
    const bins = this.lines.map((line) => (line.binSeconds === null ? null : line.binFrom(start) ?? line.binSeconds));
    return bins.includes(null) ? null : commonMultiple(bins);
  }

  get times() {
    const zone = this.lines[0].zone ?? this.lines[0].detail.display_timezone;
    return timesOf({ ...this.detail, bin: this.common === null ? this.detail.bin : length(this.common).replace(/^(?=[a-z])/, "1 ") }, zone);
  }

  get measure() {
    const [{ measure }] = this.lines;
    const titles = new Set(this.lines.map((line) => line.measure.title));
    return { ...measure, title: titles.size > 1 ? "Counted events" : measure.title };
  }

  get choice() {
    return "";
  }

  get annotations() {
    return this.board.annotationsOf(this.lines);
  }

  place(name) {
    return `${this.panel.name}-${name}`;
  }

  heads(title) {
    return `${this.fullTitle}: ${title}`;
  }

  zoom(start, end) {
    this.board.zoom(start, end);
  }

  whole() {
    const wholes = this.lines.map((line) => line.whole());
    return { start: Math.min(...wholes.map(({ start }) => start)), end: Math.max(...wholes.map(({ end }) => end)) };
  }

  domain() {
    return this.board.rangeOf(this.panel, this.lines);
  }

  range() {
    return this.domain();
  }

  // Return why the lines share no chart; null if they do. The configuration refuses such panels, addresses may have them.
  refusal() {
    const [first, ...others] = this.lines;
    const unit = (line) => (line.measure.name === "count" ? line.detail.counts : line.measure.title);
    for (const other of others) {
      if (first.detail.timezone !== other.detail.timezone) return `${first.subject} and ${other.subject} have bins of other kinds, so they share no chart. Give each its own panel.`;
      if (unit(first) !== unit(other)) return `${first.subject} and ${other.subject} count different things, so they share no axis. Give each its own panel.`;
    }
    return null;
  }

  // Return how long each point counts: a number of the common lengths. Args: the largest number of points.
  step(most) {
    return chooseStep(this.domain(), this.common, most);
  }

  // Return that length in seconds; for days, as if every day had 24 hours.
  secondsOf(step) {
    return step * (this.common ?? 86400);
  }

  // Return the length for texts about points; null for days of a time zone.
  spanOf(step) {
    return this.common === null ? null : step * this.common;
  }

  // Return the number of a line's bins in each point.
  binsOf({ binSeconds }, step) {
    return this.common === null ? step : Math.round((step * this.common) / binSeconds);
  }

  // Return the part of the range that a line has values for, as whole points that begin where those of other lines
  // begin; null if there is none.
  wholeSteps(line, step) {
    const { start, end } = this.domain();
    const [from, to] = [Math.max(start, line.whole().start), Math.min(end, line.whole().end)];
    if (from >= to) return null;
    const each = this.binsOf(line, step);
    const { bins } = line;
    const origin = this.common === null ? roundTime(step * 86400, 86400) / 86400 : bins.of(roundTime(step * this.common, this.common));
    const up = (bin) => Math.ceil((bin - origin) / each) * each + origin;
    const down = (bin) => Math.floor((bin - origin) / each) * each + origin;
    const first = bins.start(bins.of(from)) < from ? bins.of(from) + 1 : bins.of(from);
    const [one, last] = [up(first), down(bins.of(to))];
    return one < last ? { start: bins.start(one), end: bins.start(last) } : null;
  }
}

// Return the annotations of a board and of the streams of lines, each once. Args: own, of the board.
export function annotationsAmong(own, lines) {
  const all = [...own, ...lines.flatMap(({ detail }) => detail?.annotations ?? [])];
  return numbered([...new Map(all.map((one) => [JSON.stringify([one.start, one.end, one.text]), one])).values()]);
}

// Return the largest range that lines have values for.
export function wholeOf(lines) {
  const there = lines.filter(({ detail }) => detail?.released_until);
  const wholes = there.map((line) => line.whole());
  return { start: Math.min(...wholes.map(({ start }) => start)), end: Math.max(...wholes.map(({ end }) => end)) };
}
