// What one deployment of the service released in the year, and the service's answers about it.
//
// Nothing is estimated here. Running counts are the released ones; a count of a range is the difference of two of them,
// as in the service, which the build checks. Every error, quantile and distribution is an answer of the service. No
// value of these streams is ever revised, so what was known on a day of the replay is the part until that day.

import { unpackedAll } from "./columns.js";

const UNITS = 65536; // released counts are whole numbers of 1/65536
const NONE = -32768; // a quantile without an estimate
const HOUR = 3600;

export class Recording {
  // Args: start, of the year, in seconds since 1970; found, a deployment of released.js.
  static async of(start, { departures, delays }) {
    const { groups, parts, ...running } = departures;
    const names = Object.keys(groups);
    const [counts, errors, quantiles, cdfs, ...grouped] = await Promise.all(
      [running, parts, delays.quantiles, delays.cdfs, ...Object.values(groups)].map(unpackedAll));
    return new Recording(start, counts, errors, Object.fromEntries(names.map((name, i) => [name, grouped[i]])), { detail: delays.detail, quantiles, cdfs });
  }

  // Args: parts, the errors of the last days before the end of each day.
  constructor(start, running, parts, groups, delays) {
    Object.assign(this, { start, running, parts, groups, delays });
  }

  // Return the hours from the start of the year to the end of a day in New York. Args: day, 1 for 1 January.
  hoursUntil(day) {
    return this.groups["1d"].end[day - 1];
  }

  // Return the answers to the questions of the dashboard's modules, as of the end of a day, by their path.
  departuresUntil(day) {
    const hours = this.hoursUntil(day);
    const { detail, privacy, stderr, half } = this.running;
    const said = { seq: hours, released_until: rfc3339(this.#at(hours)) };
    const running = estimate(this.#count(hours), stderr[hours - 1], half[hours - 1]);
    const epochs = detail.epochs.map((one) => ({ ...one, bins_released: hours }));
    return {
      "": () => ({ ...detail, ...said, running, epochs, shape: false }), // no cap leaves any event out here
      privacy: () => ({ ...privacy, ...said }),
      count: ({ start, end }) => ({ ...this.#part(day, hours, (end - start) / HOUR), counted: detail.counted }),
      series: (query) => (query.kind === "running" ? this.#running(query, hours, said) : this.#bins(query, hours, said)),
    };
  }

  delaysUntil(day) {
    const { detail } = this.delays;
    const hours = this.hoursUntil(day);
    const said = { seq: hours, released_until: rfc3339(this.#at(hours)) };
    return {
      "": () => ({ ...detail, ...said, running: null, shape: false }),
      quantiles: (query) => this.#quantiles(query, said),
      cdf: (query) => this.#cdf(query, said),
    };
  }

  // Return the end of the last week that has ended by the end of a day.
  weekBefore(day) {
    return this.delays.quantiles.end.findLast((one) => one <= this.#at(this.hoursUntil(day)));
  }

  // Return the number of the week that ends at an instant.
  weekOf(end) {
    return this.delays.quantiles.end.indexOf(end);
  }

  #at(hours) {
    return this.start + hours * HOUR;
  }

  #count(hours) {
    return hours ? this.running.published[hours - 1] / UNITS : 0;
  }

  // Return the number of the last hours before the end of a day.
  #part(day, hours, length) {
    const [stderr, half] = ["stderr", "half"].map((name) => this.parts[`${name} ${length}`][day - 1]);
    return estimate(this.#count(hours) - this.#count(hours - length), stderr, half);
  }

  #running({ start, end, points }, hours, said) {
    const { template, stderr, half, inner80, inner50 } = this.running;
    const [first, last] = [Math.max((start - this.start) / HOUR, 0) + 1, Math.min((end - this.start) / HOUR, hours)];
    const every = Math.ceil((last - first + 1) / points);
    const shown = Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => last - i * every).reverse();
    const note = every > 1 ? `Shown is one of every ${every} released counts. ${template.note}` : template.note;
    const of = (column) => shown.map((hour) => column[hour - 1]);
    return { ...template, ...said, note, start: shown.map(() => this.start), end: shown.map((hour) => this.#at(hour)), stderr: of(stderr),
      ...banded(shown.map((hour) => this.#count(hour)), of(half), [inner80, inner50].map(of)) };
  }

  #bins({ start, end, step, days = null }, hours, said) {
    const { template, ...group } = this.groups[days ? `${days}d` : `${step}h`];
    const places = within(group.start, group.end, (start - this.start) / HOUR, Math.min((end - this.start) / HOUR, hours));
    const of = (column) => places.map((i) => column[i]);
    const note = this.groups["1h"].template.note; // the others name parts of the year that fill no group
    return { ...template, ...said, note, start: of(group.start).map((hour) => this.#at(hour)), end: of(group.end).map((hour) => this.#at(hour)),
      stderr: of(group.stderr),
      ...banded(places.map((i) => this.#count(group.end[i]) - this.#count(group.start[i])), of(group.half), [group.inner80, group.inner50].map(of)) };
  }

  #quantiles({ start, end }, said) {
    const { template, q: asked, columns, ...weeks } = this.delays.quantiles;
    const places = within(weeks.start, weeks.end, start, end);
    const column = (which) => places.map((i) => columns[which * weeks.start.length + i]).map((minutes) => (minutes === NONE ? null : minutes));
    const quantiles = asked.map((q, i) => ({ q, value: column(3 * i), lower: column(3 * i + 1), upper: column(3 * i + 2) }));
    return { ...template, ...said, start: places.map((i) => weeks.start[i]), end: places.map((i) => weeks.end[i]), quantiles,
      note: `A point is a week from Monday to Sunday; the first and the last week of the year are shorter. Delays over 120 minutes count as 120. ${template.note.replace(/^The first.*?\. /, "")}` };
  }

  // Return the distribution until the end of a week.
  #cdf({ end }, said) {
    const { template, upto, ...columns } = this.delays.cdfs;
    const week = this.weekOf(end);
    const weeks = this.delays.quantiles.end.length;
    const of = (name) => upto.map((_, bucket) => columns[name][bucket * weeks + week]);
    const [value, below, above] = ["value", "below", "above"].map(of);
    const lower = value.map((one, i) => Math.max(one - below[i], 0)); // widths are rounded up, and no count is negative
    const upper = value.map((one, i) => one + above[i]);
    const consistent = of("consistent").map((one, i) => Math.min(Math.max(one, Math.ceil(lower[i])), Math.floor(upper[i]))); // as the service's
    return { ...template, ...said, start: rfc3339(this.start), end: rfc3339(this.delays.quantiles.end[week]), upto, value, stderr: of("stderr"), consistent, lower, upper };
  }
}

export const rfc3339 = (at) => new Date(at * 1000).toISOString().replace(".000Z", "Z");

// Return the places of the groups that lie within a range.
function within(starts, ends, from, to) {
  const places = [];
  starts.forEach((start, i) => { if (start >= from && ends[i] <= to) places.push(i); });
  return places;
}

function banded(value, half, inner) {
  return { value, lower: value.map((one, i) => one - half[i]), upper: value.map((one, i) => one + half[i]), inner };
}

const estimate = (value, stderr, half) => ({ value, stderr, interval: [value - half, value + half], confidence: 0.95 });
