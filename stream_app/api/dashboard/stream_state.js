// Says whether a stream is live, complete, late or stopped. A working connection to the service does not tell this:
// the service answers also when no worker releases anything.

import { seconds } from "./times.js";
import { wait } from "./words.js";

const PUNCTUAL_S = 60; // a release takes some seconds after its bin has closed
const LEAST_STOPPED_S = 600, MOST_STOPPED_S = 86400;

// Args: what the service says of a stream: released_until; next_release, when a live stream's next bin closes; ends,
// where a replay ends; bin_seconds. now, by the service's clock.
export function stateOf({ released_until: until, next_release: next, ends, bin_seconds: bin }, now) {
  if (ends) {
    return until && seconds(until) >= seconds(ends) ? { state: "complete", text: "Complete" } : { state: "replaying", text: "Replaying" };
  }
  if (!next) return { state: "waiting", text: "Not begun" };
  const late = now - seconds(next);
  if (late <= PUNCTUAL_S) return { state: "live", text: "Live" };
  const stopped = Math.max(LEAST_STOPPED_S, Math.min(3 * (bin ?? MOST_STOPPED_S), MOST_STOPPED_S));
  if (late < stopped) return { state: "late", text: `Late by ${wait(late)}` };
  return { state: "stopped", text: `Stopped: no release for ${wait(late)}` };
}
