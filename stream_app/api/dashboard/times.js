// Writes instants as text: by the clock of the reader's time zone, or as days of the stream's own time zone if its
// bins are calendar days.
//
// Instants are seconds since 1970. All text about time, the axes of charts and the date form use the ``times`` of
// the page's stream. Addresses, CSV and JSON files have instants in UTC (RFC 3339).

import { binsOf, CalendarDays } from "./bins.js";
import { Clock } from "./clock.js";
import { dayAxis, utcAxis } from "./time_axis.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const DATE = { day: "numeric", month: "short", year: "numeric" };
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const dates = writer({ ...DATE, timeZone: "UTC" });

// Return a writer of dates whose months have three letters, as in the service's texts and on the axes: some browsers say "Sept".
function writer(options) {
  const form = new Intl.DateTimeFormat("en-GB", options);
  return { format: (at) => form.format(at).replace("Sept", "Sep") };
}

export const utc = (at) => new Date(at * 1000).toISOString();
export const seconds = (rfc3339) => Date.parse(rfc3339) / 1000;

// Return the day of an instant in UTC, as on "Retired on 23 Nov 2026".
export const day = (rfc3339) => dates.format(new Date(rfc3339));

// Return the object that writes a stream's instants. Streams with equal bins share one such object.
// Args: the answer of /v1/streams/{s}; zone, the reader's time zone.
export function timesOf(detail, zone = "UTC") {
  const name = `${detail.timezone ?? zone} ${detail.bin_seconds}`;
  if (!known.has(name)) known.set(name, detail.timezone === null ? new ClockTimes(detail, zone) : new DayTimes(detail));
  return known.get(name);
}
const known = new Map();

class ClockTimes {
  constructor(detail, zone) {
    this.bins = binsOf(detail);
    this.binSeconds = detail.bin_seconds;
    this.oneBin = detail.bin; // "1 hour", "15 minutes"
    this.bin = detail.bin.replace(/^1 /, "");
    this.per = this.bin;
    this.meaning = "";
    this.lengthNote = "";
    this.zone = zone;
    this.scale = zone;
    this.clockZone = zone === "UTC" ? "Etc/UTC" : zone; // uPlot knows UTC by this name
    this.axis = utcAxis;
    this.form = { type: "datetime-local", from: `From (${zone})`, to: `To (${zone})` };
    this.clock = new Clock(zone);
    this.days = zone === "UTC" ? null : new CalendarDays(zone); // the days of charts, if midnights are edges of bins
    this.writers = new Map();
  }

  // Return an instant as text. Args: spanSeconds, the length of the span that starts or ends there. For whole days
  // the text is the date only.
  #instant(at, spanSeconds = HOUR) {
    const { clock } = this;
    const wall = at + clock.offset(at);
    const dated = spanSeconds !== null && spanSeconds % DAY === 0 && wall % DAY === 0;
    const text = this.#writer(dated ? "date" : spanSeconds !== null && spanSeconds < MINUTE ? "second" : "minute").format(new Date(at * 1000));
    return this.days && !dated && clock.showsTwice(at) ? `${text} (${offsetWords(clock.offset(at))})` : text;
  }

  #writer(kind) {
    if (!this.writers.has(kind)) {
      const options = { ...DATE, timeZone: this.zone, ...(kind === "date" ? {} : CLOCK), ...(kind === "second" ? { second: "2-digit" } : {}) };
      this.writers.set(kind, writer(options));
    }
    return this.writers.get(kind);
  }

  // Three texts: the instant at which a span starts, the instant at which it ends, and the whole span.
  // Args: the length of the span in seconds.
  from(at, spanSeconds = this.binSeconds) {
    return this.#instant(at, spanSeconds);
  }

  until(at, spanSeconds = this.binSeconds) {
    return this.#instant(at, spanSeconds);
  }

  // Return the text of an instant at which something happened.
  moment(at, spanSeconds = this.binSeconds) {
    return this.#instant(at, spanSeconds);
  }

  // Whole days are written as their dates, "10–20 Sep 2026". A range within one day names the day only once, and
  // its midnight is 24:00.
  period(start, end, spanSeconds = this.binSeconds) {
    const [first, next] = [start, end].map((at) => (at + this.clock.offset(at)) / DAY);
    if (first < next && Number.isInteger(first) && Number.isInteger(next)) return days(first, next - 1);
    const [from, to] = [start, end].map((at) => this.#instant(at, spanSeconds < MINUTE ? spanSeconds : HOUR)); // with the time of day
    const day = from.split(", ")[0];
    if (to.startsWith(`${day}, `)) return `${from}–${to.slice(day.length + 2)}`;
    const isMidnight = Number.isInteger(next) && to.includes(", ") && date(next - 1) === day;
    return isMidnight ? `${from}–24${to.split(", ")[1].slice(2)}` : `${from} – ${to}`;
  }

  // Add the name of the time zone: on the stream's page, and in texts that leave the page, such as files.
  onPage(text) {
    return `${text} ${this.zone}`;
  }

  alone(text) {
    return `${text} ${this.zone}`;
  }

  // Return labels for slices of time: pairs [index of the slice, text].
  sliceLabels(starts) {
    const days = starts.at(-1) - starts[0] > 2 * DAY;
    const isMidnight = (at) => (at + this.clock.offset(at)) % DAY === 0;
    return starts.map((from, i) => [i, days ? withoutYear(this.#writer("date").format(new Date(from * 1000))) : this.#instant(from).split(", ")[1]])
      .filter(([i]) => !days || isMidnight(starts[i]) || starts[i + 1] - starts[i] >= DAY);
  }

  // Two conversions: from a range to the fields of the date form, and back.
  toForm({ start, end }) {
    return [start, end].map((at) => new Date((at + this.clock.offset(at)) * 1000).toISOString().slice(0, 19));
  }

  fromForm(from, to) {
    const [start, end] = [from, to].map((wall) => this.clock.at(seconds(`${wall}Z`)));
    return { start, end };
  }

  // Return whether every day of the time zone that begins within a range begins at the edge of a bin.
  // Args: edgeBefore(at), returns the last edge of a bin before or at an instant.
  hasWholeDays({ start, end }, edgeBefore) {
    if (!this.days) return false;
    const [first, last] = [this.days.of(start), this.days.of(end)];
    for (let day = first; day <= last; day += 1) {
      const midnight = this.days.start(day);
      if (midnight >= start && edgeBefore(midnight) !== midnight) return false;
    }
    return true;
  }
}

function offsetWords(offset) {
  const minutes = Math.abs(offset) / 60;
  const clock = `${Math.floor(minutes / 60)}${minutes % 60 ? `:${minutes % 60}` : ""}`;
  return `UTC${offset < 0 ? "−" : "+"}${clock}`;
}

// Writes instants as days. A range of days names its first and its last day, so the end of a range is written as
// the day before it.
class DayTimes {
  constructor(detail) {
    this.bins = binsOf(detail);
    this.zone = detail.timezone;
    this.oneBin = "1 day";
    this.bin = "day";
    this.per = `day of ${this.zone}`;
    this.meaning = "A range includes its first and its last day.";
    this.lengthNote = ` A day is a calendar day of ${this.zone}, 23 to 25 hours.`;
    this.scale = `whole days of ${this.zone}`;
    this.clockZone = "Etc/UTC";
    this.axis = dayAxis(this.bins, date);
    this.form = { type: "date", from: "First day", to: "Last day" };
    this.clock = writer({ ...DATE, ...CLOCK, timeZone: this.zone });
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
    const last = start < end ? this.#lastDay(end) : this.bins.of(end) - 1; // the time zone skipped a day
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

// Return a date such as "29 Mar 2013". Args: the day, counted from 1970-01-01 on the calendar.
function date(day) {
  return dates.format(new Date(day * DAY * 1000));
}

// Return a range of days, such as "29 Mar 2013", "1–7 Apr 2013", "29 Mar – 3 Apr 2013" or
// "29 Mar 2013 – 2 Jan 2014".
function days(first, last) {
  const [from, to] = [first, last].map((day) => date(day).split(" "));
  if (first === last) return to.join(" ");
  const [dash, said] = from[2] !== to[2] ? [" – ", 3] : from[1] !== to[1] ? [" – ", 2] : ["–", 1];
  return from.slice(0, said).join(" ") + dash + to.join(" ");
}

const withoutYear = (text) => text.replace(/ \d{4}$/, "");
