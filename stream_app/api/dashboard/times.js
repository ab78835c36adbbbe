// Writes instants for readers: in UTC, or as days of the stream's zone if bins are calendar days.
//
// Instants are seconds since 1970. A page uses the stream's ``times`` for all text about time, for the axes of
// charts and for dates that the reader fills in. Addresses, CSV and JSON keep RFC 3339 in UTC.

import { binsOf } from "./bins.js";
import { dayAxis, utcAxis } from "./time_axis.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const DATE = { day: "numeric", month: "short", year: "numeric" };
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const dates = new Intl.DateTimeFormat("en-GB", { ...DATE, timeZone: "UTC" });

export const seconds = (rfc3339) => Date.parse(rfc3339) / 1000;

// Return the times of a stream; streams with equal bins share them. Args: the answer of /v1/streams/{s}.
export function timesOf(detail) {
  const name = `${detail.timezone} ${detail.bin_seconds}`;
  if (!known.has(name)) known.set(name, detail.timezone === null ? new UtcTimes(detail) : new DayTimes(detail));
  return known.get(name);
}
const known = new Map();

// An instant in UTC; only the date if the thing that begins or ends there lasts whole days.
function instant(at, spanSeconds = HOUR) {
  const options = { ...DATE, timeZone: "UTC" };
  if (spanSeconds === null || spanSeconds % DAY !== 0) Object.assign(options, CLOCK);
  if (spanSeconds !== null && spanSeconds < MINUTE) options.second = "2-digit";
  return new Intl.DateTimeFormat("en-GB", options).format(new Date(at * 1000));
}

class UtcTimes {
  constructor(detail) {
    this.bins = binsOf(detail);
    this.binSeconds = detail.bin_seconds;
    this.oneBin = detail.bin; // "1 hour", "15 minutes"
    this.bin = detail.bin.replace(/^1 /, "");
    this.per = this.bin;
    this.meaning = "";
    this.lengthNote = "";
    this.zone = "UTC";
    this.scale = "UTC";
    this.axis = utcAxis;
    this.form = { type: "datetime-local", from: "From (UTC)", to: "To (UTC)" };
  }

  // An edge at which something begins, an edge at which it ends, a range. Args: the length of that thing.
  from(at, spanSeconds = this.binSeconds) {
    return instant(at, spanSeconds);
  }

  until(at, spanSeconds = this.binSeconds) {
    return instant(at, spanSeconds);
  }

  // When something happened.
  moment(at, spanSeconds = this.binSeconds) {
    return instant(at, spanSeconds);
  }

  // If both ends are on the same day, the day is written once.
  period(start, end, spanSeconds = this.binSeconds) {
    const [from, to] = [instant(start, spanSeconds), instant(end, spanSeconds)];
    const [day, time] = to.split(", ");
    return time && from.startsWith(`${day}, `) ? `${from}–${time}` : `${from} – ${to}`;
  }

  // With the zone's name: on the stream's page, and in places outside this page.
  onPage(text) {
    return `${text} UTC`;
  }

  alone(text) {
    return `${text} UTC`;
  }

  // Labels under slices of time: [index, text] for each slice that may have one.
  sliceLabels(starts) {
    const days = starts.at(-1) - starts[0] > 2 * DAY;
    return starts.map((from, i) => [i, days ? withoutYear(instant(from, DAY)) : instant(from).split(", ")[1]])
      .filter(([i]) => !days || starts[i] % DAY === 0 || starts[i + 1] - starts[i] >= DAY);
  }

  // Convert a range to the fields of the date form, and back.
  toForm({ start, end }) {
    return [start, end].map((at) => new Date(at * 1000).toISOString().slice(0, 19));
  }

  fromForm(from, to) {
    return { start: seconds(`${from}Z`), end: seconds(`${to}Z`) };
  }
}

// A range of days names its last day, so an edge at which something ends is written as the day before.
class DayTimes {
  constructor(detail) {
    this.bins = binsOf(detail);
    this.zone = detail.timezone;
    this.oneBin = "1 day";
    this.bin = "day";
    this.per = `day of ${this.zone}`;
    this.meaning = "; a range of days includes its last";
    this.lengthNote = ` A day is a calendar day of ${this.zone}, 23 to 25 hours.`;
    this.scale = `whole days of ${this.zone}`;
    this.axis = dayAxis(this.bins, date);
    this.form = { type: "date", from: "First day", to: "Last day" };
    this.clock = new Intl.DateTimeFormat("en-GB", { ...DATE, ...CLOCK, timeZone: this.zone });
  }

  from(at) {
    return this.#isEdge(at) ? date(this.bins.of(at)) : this.#clockAt(at);
  }

  until(at) {
    return this.#isEdge(at) ? `the end of ${date(this.#lastDay(at))}` : this.#clockAt(at);
  }

  moment(at) {
    return `at ${this.until(at)}`;
  }

  period(start, end) {
    if (!this.#isEdge(start) || !this.#isEdge(end)) return `${this.#clockAt(start)} – ${this.#clockAt(end)}`;
    const last = start < end ? this.#lastDay(end) : this.bins.of(end) - 1; // a day that the zone skipped
    return days(Math.min(this.bins.of(start), last), last);
  }

  onPage(text) {
    return text;
  }

  alone(text) {
    return `${text}, ${this.scale}`;
  }

  sliceLabels(starts) {
    return starts.map((from, i) => [i, withoutYear(this.from(from))]);
  }

  toForm({ start, end }) {
    return [this.bins.of(start), this.#lastDay(end)].map((day) => new Date(day * DAY * 1000).toISOString().slice(0, 10));
  }

  fromForm(from, to) {
    const [first, last] = [from, to].map((day) => Math.round(seconds(day) / DAY));
    return { start: this.bins.start(first), end: this.bins.start(last + 1) };
  }

  #isEdge(at) {
    return this.bins.start(this.bins.of(at)) === at;
  }

  #lastDay(end) {
    return this.bins.of(end - 1);
  }

  #clockAt(at) {
    return this.clock.format(new Date(at * 1000));
  }
}

// "29 Mar 2013". Args: days since 1970 on the calendar, of whatever zone.
function date(day) {
  return dates.format(new Date(day * DAY * 1000));
}

// "29 Mar 2013", "1–7 Apr 2013", "29 Mar – 3 Apr 2013", "29 Mar 2013 – 2 Jan 2014".
function days(first, last) {
  const [from, to] = [first, last].map((day) => date(day).split(" "));
  if (first === last) return to.join(" ");
  const [dash, said] = from[2] !== to[2] ? [" – ", 3] : from[1] !== to[1] ? [" – ", 2] : ["–", 1];
  return from.slice(0, said).join(" ") + dash + to.join(" ");
}

const withoutYear = (text) => text.replace(/ \d{4}$/, "");
