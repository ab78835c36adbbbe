// The bins of earlier streams, whose history goes on in a stream with other bins. Ranges and steps must fit them, too.

import { binsOf } from "./bins.js";
import { seconds } from "./times.js";

const known = new WeakMap(); // by detail

// Return the earlier streams of a history whose bins differ from those of the stream, oldest first: their bins, and the
// instant until which they reach. Args: the answer of /v1/streams/{s}.
function piecesOf(detail) {
  if (!known.has(detail)) {
    const begins = [...(detail.history ?? []).slice(1).map((one) => one.start), detail.epochs[0]?.start];
    const all = (detail.history ?? []).map((one, i) => ({ ...one, start: seconds(one.start), until: seconds(begins[i]), bins: binsOf(one) }));
    known.set(detail, all.filter((one) => one.bin !== detail.bin));
  }
  return known.get(detail);
}

// Return whether the history of a stream has other bins.
export const hasOtherBins = (detail) => piecesOf(detail).length > 0;

// Return the edges of bins around an instant: the last one before or at it, and the first one at or after it.
// Args: own, the bins of the stream.
export function edgesAround(detail, own, at) {
  const piece = piecesOf(detail).find((one) => one.start <= at && at < one.until);
  const bins = piece?.bins ?? own;
  const before = bins.start(bins.of(at));
  return [before, before === at ? at : bins.start(bins.of(at) + 1)];
}

// Return the shortest time that is a whole number of bins of every stream whose bins reach beyond an instant, in
// seconds; null for calendar days, with their time zone.
export function commonBin(detail, from) {
  const reached = [detail, ...piecesOf(detail).filter((one) => one.until > from)];
  const days = reached.find((one) => one.bin_seconds === null);
  if (days) return { length: null, zone: days.timezone };
  return { length: commonMultiple(reached.map((one) => one.bin_seconds)), zone: null };
}

// Return the shortest time that is a whole number of each length. All are in seconds.
export function commonMultiple(lengths) {
  const divisor = (one, other) => (other ? divisor(other, one % other) : one);
  return lengths.map((length) => Math.round(length * 1e6)).reduce((one, other) => (one / divisor(one, other)) * other) / 1e6;
}
