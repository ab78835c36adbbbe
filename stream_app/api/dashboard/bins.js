// Converts between instants and bins. A bin has the same number here as in the service. An instant is in
// seconds since 1970.

const DAY = 86400;
const WEEK = 7 * DAY;

// Return the bins of a stream: bins of equal length, or the calendar days of a time zone.
// Args: the answer of /v1/streams/{s}.
export const binsOf = ({ bin_seconds: length, timezone }) => (timezone === null ? new FixedBins(length) : new CalendarDays(timezone));

class FixedBins {
  constructor(length) {
    this.length = length;
  }

  start(bin) {
    return Math.round(bin * this.length * 1e6) / 1e6;
  }

  // Return the bin that contains an instant.
  of(instant) {
    return Math.floor(instant / this.length + 1e-6); // the start of a bin belongs to that bin; the term absorbs rounding
  }

  // Return the number of bins in a week. Return null if a week is not a whole number of bins.
  get week() {
    return WEEK % this.length === 0 ? WEEK / this.length : null;
  }
}

class CalendarDays {
  constructor(zone) {
    this.length = DAY; // a day is an hour longer or shorter if the clocks change on it
    this.week = 7;
    const parts = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
    this.clock = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...parts });
    this.starts = new Map();
  }

  // Return the instant at which a day starts, usually midnight. If the clocks show midnight twice, this is the
  // first time. If the clocks skip midnight, this is the instant of the skip.
  start(day) {
    if (!this.starts.has(day)) this.starts.set(day, this.#midnight(day * DAY));
    return this.starts.get(day);
  }

  of(instant) {
    const near = Math.floor(instant / DAY);
    return [near + 1, near, near - 1].find((day) => this.start(day) <= instant);
  }

  // Return the instant of a midnight. Args: the seconds from 1970 to that midnight on the local calendar.
  // This assumes that the clocks change at most once within a day before and a day after.
  #midnight(wall) {
    const [before, after] = [this.#offset(wall - DAY), this.#offset(wall + DAY)];
    return this.#offset(wall - Math.max(before, after)) === after ? wall - after : wall - before;
  }

  #offset(instant) {
    const said = Object.fromEntries(this.clock.formatToParts(instant * 1000).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(said.year, said.month - 1, said.day, said.hour, said.minute, said.second) / 1000 - instant;
  }
}
