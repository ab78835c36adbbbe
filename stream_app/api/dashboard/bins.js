// The time line of a stream as bins: absolute whole numbers, as the service has them; instants in seconds.

const DAY = 86400;
const WEEK = 7 * DAY;

// Return the bins of a stream: bins of one length, or calendar days of a zone. Args: the answer of /v1/streams/{s}.
export const binsOf = ({ bin_seconds: length, timezone }) => (timezone === null ? new FixedBins(length) : new CalendarDays(timezone));

class FixedBins {
  constructor(length) {
    this.length = length;
  }

  start(bin) {
    return Math.round(bin * this.length * 1e6) / 1e6;
  }

  // The bin that an instant lies in.
  of(instant) {
    return Math.floor(instant / this.length + 1e-6); // an edge lies in the bin that it begins
  }

  // Bins in a week; null if a week is not a whole number of bins.
  get week() {
    return WEEK % this.length === 0 ? WEEK / this.length : null;
  }
}

class CalendarDays {
  constructor(zone) {
    this.length = DAY; // days on which clocks change are an hour longer or shorter
    this.week = 7;
    const parts = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
    this.clock = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...parts });
    this.starts = new Map();
  }

  // Midnight. If clocks pass midnight twice, the first one; if they skip it, the instant of the skip.
  start(day) {
    if (!this.starts.has(day)) this.starts.set(day, this.#midnight(day * DAY));
    return this.starts.get(day);
  }

  of(instant) {
    const near = Math.floor(instant / DAY);
    return [near + 1, near, near - 1].find((day) => this.start(day) <= instant);
  }

  // Args: midnight in local time. Clocks change at most once in the days around it.
  #midnight(wall) {
    const [before, after] = [this.#offset(wall - DAY), this.#offset(wall + DAY)];
    return this.#offset(wall - Math.max(before, after)) === after ? wall - after : wall - before;
  }

  #offset(instant) {
    const said = Object.fromEntries(this.clock.formatToParts(instant * 1000).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(said.year, said.month - 1, said.day, said.hour, said.minute, said.second) / 1000 - instant;
  }
}
