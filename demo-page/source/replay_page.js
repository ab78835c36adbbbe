// The state of a stream's page, as of a moment of the replay.

import { StreamPage } from "../../stream_app/api/dashboard/state.js";

const ZONE = "America/New_York";
const PARTS = ["30 days", "7 days"]; // ranges whose numbers are recorded

export class ReplayPage extends StreamPage {
  constructor(stream, told) {
    super(`https://replay.invalid/streams/${stream}${window.location.search}`, told);
    Object.assign(this, { zone: ZONE, view: "unbiased", keys: [] });
  }

  // Return whether the charts show all of the year so far.
  get isWhole() {
    return this.stream === "delays" || (!this.closer && this.preset === "all");
  }

  // Of other parts of the year no number is recorded, so the number stays that of the year so far.
  get isPart() {
    return !this.closer && PARTS.includes(this.preset) && super.isPart;
  }

  // The axis of the whole year does not grow while the replay moves.
  domain() {
    const { start, days } = window.RELEASED;
    return this.isWhole ? { start, end: start + days * 86400 } : this.range();
  }

  // No answers in calendar units are recorded, so the page does not offer them.
  get calendarZone() {
    return null;
  }

  // Charts of the whole year have points of the same length at every moment of the replay.
  groups(most) {
    return this.isWhole ? { ...this.range(), days: 365 <= most ? 1 : 7, timezone: ZONE } : super.groups(most);
  }

  // Distributions are recorded from the start of the year only, so their charts do not zoom.
  zoom(start, end) {
    return this.stream === "delays" ? null : super.zoom(start, end);
  }
}
