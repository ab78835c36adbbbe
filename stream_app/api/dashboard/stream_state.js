// Says whether a stream is live, complete, late or stopped. A working connection to the service does not tell this:
// the service answers also when no worker releases anything.

import { day, seconds } from "./times.js";
import { wait } from "./words.js";

const PUNCTUAL_S = 60; // a release takes some seconds after its bin has closed
const LEAST_STOPPED_S = 600, MOST_STOPPED_S = 86400;
const LONG_S = 2 * 86400; // from here on the day says more than the number of days
const WATCHED_S = 10; // a stream is said to have stopped only after the page has watched it for this long
const MOVING_S = 30; // a stream that is behind is catching up if it released something this recently

// What a page has seen of a stream's releases since it was opened: `since` and `moved`, by the service's clock.
export class Watched {
  constructor(now) {
    this.since = now;
    this.moved = -Infinity; // when the last release arrived
  }
}

// Return what a state means for the numbers on the page, in a sentence; empty for states that need none.
export function stateWords(state, { released_until: until }) {
  if (state === "halted") return "A fault of its log, or in its settings, keeps this stream from being counted. The service’s operator is told. What was released stays true.";
  if (state === "stopped" && until) return "Nothing new has been released for a while. All numbers on this page end at the time under “Released until”.";
  if (state === "stopped") return "Nothing has been released yet, although the first bin has ended.";
  return "";
}

// Return whether all bins of a stream are released.
export const isComplete = ({ released_until: until, ends, retired, imported }) => Boolean(retired || imported || (ends && until && seconds(until) >= seconds(ends)));

// Args: what the service says of a stream: released_until; next_release, when a live stream's next bin becomes visible;
// ends, where a replay or a live stream ends; bin_seconds; retired, imported, since when nobody counts a stream that is history; halted, whether a fault has stopped it. now, by the service's clock. watched, what the page has seen; connected,
// whether the page hears of releases.
export function stateOf(said, now, watched, connected) {
  const { released_until: until, next_release: next, ends, bin_seconds: bin, retired, imported, halted } = said;
  if (retired) return { state: "complete", text: `Retired on ${day(retired)}` };
  if (imported) return { state: "complete", text: `History, imported on ${day(imported)}` };
  if (isComplete(said)) return { state: "complete", text: "Complete" };
  if (!connected) return { state: "quiet", text: "" };
  if (halted) return { state: "halted", text: "Stopped by a fault" };
  if (ends && !next) return { state: "replaying", text: now - Math.max(watched.since, watched.moved) < PUNCTUAL_S ? "Replaying" : "Replay not complete" };
  if (!next) return { state: "waiting", text: "Not begun" };
  const late = now - seconds(next);
  if (late <= PUNCTUAL_S) return until ? { state: "live", text: "Live" } : { state: "waiting", text: late < 0 ? `First release in ${wait(-late)}` : "First release any moment" };
  if (now - watched.moved < MOVING_S) return { state: "late", text: `Catching up: ${wait(late)} behind` };
  const stopped = Math.max(LEAST_STOPPED_S, Math.min(3 * (bin ?? MOST_STOPPED_S), MOST_STOPPED_S));
  const howLong = late < LONG_S ? `by ${wait(late)}` : `since ${day(next)}`;
  if (late < stopped || now - watched.since < WATCHED_S) return { state: "late", text: `Late ${howLong}` };
  return { state: "stopped", text: `Stopped: overdue ${howLong}` };
}
