// The panel of events per bin, or per group of bins. It can also show the same range of the week before.

import { bold, make } from "../elements.js";
import { Panel, pictureOf } from "../panel.js";
import { CALENDAR, roomFor } from "../ranges.js";
import { length } from "../words.js";

// Each interval has 97.5 %, so both together hold with at least 95 %, even if their errors are correlated.
const EACH = 0.975;

export class Bins extends Panel {
  constructor(page) {
    super(page, "bins", "Events per bin");
    this.band = this.chart({ stepped: true, fromZero: true, strong: page.hasStrongChart });
    this.compare = make("input", { type: "checkbox", id: page.place("compare"), checked: page.compare });
    this.compare.addEventListener("change", () => page.choose({ compare: this.compare.checked }));
    this.bars = make("select", { id: page.place("bars") }, new Option("auto", ""), ...Object.keys(CALENDAR).map((unit) => new Option(unit)));
    this.bars.addEventListener("change", () => page.choose({ bars: this.bars.value || null }));
    this.barring = make("label", { className: "picker" }, make("span", {}, "Per"), this.bars);
    this.tools.append(this.barring, make("label", { className: "check" }, this.compare, "Week before"));
    this.difference = make("p", { className: "difference", id: page.place("difference"), hidden: true });
    this.readout.after(this.difference);
    this.legend = make("p", { className: "mark-keys" }); // of changes of alerts, because their names are left out where they have no room
    this.saving.before(this.legend);
  }

  async ask(page) {
    const units = page.calendar();
    this.barring.hidden = !page.calendarZone;
    this.bars.value = units ? page.bars : "";
    const slices = units ?? page.groups(Math.min(roomFor(this.body.clientWidth), page.measure.most ?? Infinity));
    const asked = { kind: "bin", ...slices };
    const alone = !page.compare; // two bands in one chart have no inner parts
    const calendar = slices.days ? page.times.days : page.bins; // of both, weeks are whole numbers
    const possible = !units && calendar.week !== null && hasWeekBefore(calendar, slices.start, page);
    this.compare.disabled = !possible;
    this.compare.parentElement.title = possible ? "Compare with the week before" : "The stream has no such range a week before this one";
    const [answer, earlier] = await Promise.all([
      page.points({ ...asked, inner: alone }),
      possible && page.compare ? this.#earlier(page, asked, calendar) : null,
    ]);
    return { ...answer, unit: units && page.bars, earlier, note: [units ? "" : this.#leftOut(answer, page), answer.note].filter(Boolean).join(" ") };
  }

  // Return which parts of the range are not shown, because groups of bins are whole and start at round times.
  #leftOut({ start, end }, page) {
    if (!start.length) return "";
    const { times } = page;
    const range = page.range();
    const parts = [[range.start, start[0]], [end.at(-1), range.end]].filter(([from, to]) => from < to);
    const one = length((end[0] - start[0]));
    return parts.length ? `Not drawn, because shorter than ${one.replace(/^(?=[a-z])/, "one ")}: ${parts.map(([from, to]) => times.period(from, to)).join("; ")}.` : "";
  }

  async #earlier(page, asked, calendar) {
    const { start, end } = asked;
    const before = { start: weekBefore(calendar, start), end: weekBefore(calendar, end) };
    const [series, now, then] = await Promise.all([
      page.points({ ...asked, ...before }),
      page.ask(page.measure.single, { start, end, confidence: EACH }),
      page.ask(page.measure.single, { ...before, confidence: EACH }),
    ]);
    return { series, now, then, calendar };
  }

  show(answer, page) {
    const { binSeconds } = page;
    const { unit } = answer;
    const step = answer.days ? answer.days * 86400 / binSeconds : answer.step;
    this.heading.textContent = `${page.measure.title} per ${unit ?? length(step * page.bins.length)}`;
    const picture = pictureOf(answer, page, answer.earlier ? "now" : "");
    picture.levels = page.levels(({ measure, window_bins: bins }) => measure === "sum" && bins === step);
    if (answer.earlier) picture.lines.push(this.#line(answer));
    const shown = unit ? 86400 : step === 1 || binSeconds === null ? binSeconds : Math.min(step * binSeconds, 86400);
    this.band.show(picture, shown, page.domain());
    const { start, end } = page.domain();
    const kinds = new Set(picture.marks.filter(({ at }) => at >= start && at <= end).map(({ kind }) => kind));
    this.legend.replaceChildren(...[...kinds].map((kind) => make("span", { dataset: { kind } }, kind)));
    this.difference.hidden = !answer.earlier;
    if (answer.earlier) this.difference.replaceChildren(...inWords(answer.earlier, page.measure));
  }

  // Return the week before as a line that is moved forward by a week. Bins that were not measured stay empty.
  #line({ start, earlier: { series, calendar } }) {
    const places = new Map(series.start.map((edge, i) => [calendar.of(edge) + calendar.week, i]));
    const column = (values) => start.map((edge) => values[places.get(calendar.of(edge))] ?? null);
    return { name: "week before", quiet: true, dash: true, value: column(series.value), lower: column(series.lower), upper: column(series.upper) };
  }
}

// Return whether the stream has the week before, in bins that the same steps fit.
function hasWeekBefore(calendar, start, page) {
  const before = weekBefore(calendar, start);
  return before >= page.whole().start && page.binFrom(before) === page.binFrom(start);
}

// Return the instant a week before the start of a bin or a day. Args: calendar, of bins or days.
const weekBefore = (calendar, edge) => calendar.start(calendar.of(edge) - calendar.week);

// Return the difference of two ranges in words. Args: now and then, the chosen range and the same one a week before.
function inWords({ now, then }, measure) {
  if ([now, then].some((one) => measure.enough?.(one) === false)) return ["Too few events for a mean, here or a week before."];
  const { numbers: { value, between }, more, fewer } = measure;
  const difference = now.value - then.value;
  const low = now.interval[0] - then.interval[1], high = now.interval[1] - then.interval[0];
  const [least, most] = between(Math.min(Math.abs(low), Math.abs(high)), Math.max(Math.abs(low), Math.abs(high)));
  const verdict = low > 0 ? [`${more} by ${least} to ${most}`] : high < 0 ? [`${fewer} by ${least} to ${most}`]
    : [`no difference is certain: between ${between(low, high).join(" and ")}`];
  const what = measure.name === "count" ? ` ${now.counted} here, ` : " here, ";
  return [bold(value(now.value, now.interval)), what, bold(value(then.value, then.interval)), " in the same range a week before: ",
    `${difference >= 0 ? "+" : "−"}${value(Math.abs(difference), [low, high])}, `, ...verdict, " (95 %)."];
}
