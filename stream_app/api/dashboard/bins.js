// The time line of a stream as bins: absolute whole numbers, as the service has them; instants in seconds.

const DAY = 86400;
const WEEK = 7 * DAY;

// Bins of the stream that /v1/streams/{s} tells of: of one length, or calendar days of a zone.
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

  // Bins in a week; null where they are not whole.
  get week() {
    return WEEK % this.length === 0 ? WEEK / this.length : null;
  }
}

class CalendarDays {
  constructor(zone) {
    this.length = DAY; // but for the days on which clocks change
    this.week = 7;
    const parts = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
    this.clock = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...parts });
    this.starts = new Map();
  }

  // Midnight; where clocks pass it twice, the first, and where they skip it, the instant at which they do.
  start(day) {
    if (!this.starts.has(day)) this.starts.set(day, this.#midnight(day * DAY));
    return this.starts.get(day);
  }

  of(instant) {
    const near = Math.floor(instant / DAY);
    return [near + 1, near, near - 1].find((day) => this.start(day) <= instant);
  }

  // Args: midnight as the clock on the wall shows it. Clocks change at most once in the days around it.
  #midnight(wall) {
    const [before, after] = [this.#offset(wall - DAY), this.#offset(wall + DAY)];
    return this.#offset(wall - Math.max(before, after)) === after ? wall - after : wall - before;
  }

  #offset(instant) {
    const said = Object.fromEntries(this.clock.formatToParts(instant * 1000).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(said.year, said.month - 1, said.day, said.hour, said.minute, said.second) / 1000 - instant;
  }
}
