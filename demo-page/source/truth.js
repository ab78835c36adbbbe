// The true numbers beside the released ones. The events are public; in a real deployment nobody sees these lines.

import { unpackedAll } from "./columns.js";

const HOUR = 3600;
const NAMES = ["true median", "true 90 %"];
const nothing = (values) => values.map(() => null);

export class Truth {
  // Args: start, of the year, in seconds since 1970; counted, the recount of a unit of released.js.
  static async of(start, counted) {
    const { departures, not_counted: notCounted, quantiles, cdfs } = await unpackedAll(counted);
    const running = [0];
    departures.forEach((count) => running.push(running.at(-1) + count));
    return new Truth(start, running, notCounted, quantiles, cdfs);
  }

  constructor(start, running, notCounted, quantiles, cdfs) {
    Object.assign(this, { start, running, notCounted, quantiles, cdfs });
  }

  // Return the number of departures until an instant.
  until(at) {
    return this.running[Math.round((at - this.start) / HOUR)];
  }

  // Return after each hour how many of the released counts of one hour had the true number in their interval.
  held({ value, lower, upper, start, end }) {
    const found = [0];
    value.forEach((_, i) => {
      const count = this.until(end[i]) - this.until(start[i]);
      found.push(found[i] + (lower[i] <= count && count <= upper[i] ? 1 : 0));
    });
    return found;
  }

  // Each of the following returns lines for a picture of a panel.
  ofRunning({ end }) {
    return [line("truth", end.map((at) => this.until(at)))];
  }

  ofBins({ start, end }) {
    return [line("truth", end.map((at, i) => this.until(at) - this.until(start[i])))];
  }

  // Return how far the truth is from the released count, for the chart of the band.
  ofBand(picture, released) {
    return [line("truth differs by", picture.end.map((at, i) => this.until(at) - released[i]))];
  }

  ofQuantiles({ lines }, places) {
    return lines.map((_, which) => line(NAMES[which], places.map((week) => this.quantiles[2 * week + which])));
  }

  ofDistribution({ end }, week) {
    return [line("truth", Array.from(this.cdfs.slice(week * end.length, (week + 1) * end.length)))];
  }
}

const line = (name, value) => ({ name, value, lower: nothing(value), upper: nothing(value), quiet: true, dash: true });
