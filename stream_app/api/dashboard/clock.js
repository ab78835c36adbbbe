// The clock of a time zone: converts between instants and times on the wall, both in seconds since 1970.

const PARTS = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };

export class Clock {
  constructor(zone) {
    this.zone = zone;
    this.parts = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...PARTS });
  }

  // Return by how many seconds the time on the wall is ahead of UTC.
  offset(instant) {
    if (this.zone === "UTC") return 0;
    const said = Object.fromEntries(this.parts.formatToParts(instant * 1000).map(({ type, value }) => [type, Number(value)]));
    const whole = Math.floor(instant);
    return Date.UTC(said.year, said.month - 1, said.day, said.hour, said.minute, said.second) / 1000 - whole;
  }

  // Return the instant of a time on the wall. If the clocks show it twice, this is the first time. If the clocks
  // skip it, this is the instant of the skip. The clocks change at most once within a day before and a day after.
  at(wall) {
    const [before, after] = [this.offset(wall - 86400), this.offset(wall + 86400)];
    return this.offset(wall - Math.max(before, after)) === after ? wall - after : wall - before;
  }

  // Return whether another instant nearby has the same time on the wall, because the clocks are put back.
  showsTwice(instant) {
    const wall = instant + this.offset(instant);
    return [1800, 3600].some((step) => [instant - step, instant + step].some((other) => other + this.offset(other) === wall));
  }
}
