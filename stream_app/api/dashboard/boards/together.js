// The panel of several streams in one chart: counts of equal lengths of time, or running counts. Each line has its own
// band.

import { Panel } from "../panel.js";
import { roomFor } from "../ranges.js";
import { length, costs } from "../words.js";

const INKS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const DASHES = [undefined, [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [12, 5]];

// Return how a line of a chart looks, by its place: its colour and its dashes.
export const lookOf = (place) => ({ ink: INKS[place % INKS.length], dash: DASHES[place % DASHES.length] });

class Together extends Panel {
  // Args: group, the lines as one page; name and kind, of the panel and of its points; stepped, as of BandChart.
  constructor(group, name, kind, stepped) {
    super(group, name, "");
    this.kind = kind;
    this.band = this.chart({ stepped, fromZero: stepped, legend: true });
  }

  async ask(group) {
    const most = Math.min(roomFor(this.body.clientWidth), group.measure.most ?? Infinity);
    this.step = group.step(most);
    const answers = await Promise.all(group.lines.map((line) => this.#askLine(group, line)));
    const seq = Math.max(0, ...answers.map((answer) => answer?.seq ?? 0));
    const isPrivate = answers.every((answer) => answer?.private !== false);
    return { lines: answers.map((answer, i) => ({ line: group.lines[i].subject, ...answer })), seq, private: isPrivate, note: this.remark(group, answers) };
  }

  async #askLine(group, line) {
    const range = group.wholeSteps(line, this.step);
    return range && line.points({ kind: this.kind, inner: true, ...range, step: group.binsOf(line, this.step) });
  }

  // Return what a reader must know to compare the lines.
  remark(group, answers) {
    const { start, end } = group.domain();
    const isWithin = (line) => line.whole().start < end && line.whole().end > start;
    const each = this.each(group);
    const without = group.lines.filter((_, i) => !answers[i]).map((line) => (isWithin(line) ? `${line.subject} has no whole ${each} in this range.` : `${line.subject} has nothing in this range.`));
    const isCut = group.lines.some((line) => group.binsOf(line, this.step) > 1);
    return [...without, ...(isCut ? [`Time at the ends that fills no whole point (${each}) is not shown.`] : [])].join(" ");
  }

  show({ lines, seq }, group) {
    const ends = [...new Set(lines.flatMap(({ end }) => end ?? []))].sort((one, other) => one - other);
    const starts = new Map(lines.flatMap(({ start, end }) => (end ?? []).map((to, i) => [to, start[i]])));
    const drawn = lines.map((answer, place) => {
      const at = new Map((answer.end ?? []).map((to, i) => [to, i]));
      const column = (values) => ends.map((to) => (at.has(to) ? values[at.get(to)] : null));
      const of = (name) => (answer.end ? column(answer[name]) : ends.map(() => null));
      const inner = answer.inner?.map(column) ?? [];
      return { name: answer.line, ...lookOf(place), value: of("value"), lower: of("lower"), upper: of("upper"), inner };
    });
    const numbers = { ...group.measure.numbers, none: "no value" };
    this.heading.textContent = this.title(group);
    const start = this.kind === "bin" ? ends.map((to) => starts.get(to)) : null;
    this.band.show({ start, end: ends, seq, lines: drawn, numbers, counted: group.measure.counted, afloat: group.measure.name === "mean" }, group.spanOf(this.step), group.domain());
  }

  // Return how long each point counts, in words: "hour", "3 hours".
  each(group) {
    return length(group.secondsOf(this.step));
  }

  caption() {
    const { times, lines } = this.page;
    const { start, end } = this.page.domain();
    const each = lines.map((line, place) => `${place + 1}. ${line.subject}: ${costs(line.detail)}${line.detail.warning ? ` ${line.detail.warning}` : ""}`);
    return [`${this.page.fullTitle}: ${this.heading.textContent}`, times.alone(times.period(start, end)),
      "Each band holds the true number of its line with 95 % probability at each single point.", ...each];
  }
}

export class BinsTogether extends Together {
  constructor(group) {
    super(group, "bins", "bin", true);
  }

  title(group) {
    return `${group.measure.title} per ${this.each(group)}`;
  }
}

export class RunningTogether extends Together {
  constructor(group) {
    super(group, "running", "running", false);
  }

  title(group) {
    return group.measure.running;
  }

  // Running counts begin at different times, so the lines are no comparison of the same time.
  remark(group, answers) {
    const since = group.lines.map((line) => `${line.subject} since ${line.times.onPage(line.times.from(line.whole().start))}`);
    return [`Counted: ${since.join("; ")}.`, super.remark(group, answers)].filter(Boolean).join(" ");
  }
}
