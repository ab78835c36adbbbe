// Converts between instants and bins. A bin has the same number here as in the service. An instant is in
// seconds since 1970.

import { Clock } from "./clock.js";

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

export class CalendarDays {
  constructor(zone) {
    this.length = DAY; // a day is an hour longer or shorter if the clocks change on it
    this.week = 7;
    this.clock = new Clock(zone);
    this.starts = new Map();
  }

  // Return the instant at which a day starts, usually midnight. If the clocks show midnight twice, this is the
  // first time. If the clocks skip midnight, this is the instant of the skip.
  start(day) {
    if (!this.starts.has(day)) this.starts.set(day, this.clock.at(day * DAY));
    return this.starts.get(day);
  }

  of(instant) {
    const near = Math.floor(instant / DAY);
    return [near + 1, near, near - 1].find((day) => this.start(day) <= instant);
  }
}
