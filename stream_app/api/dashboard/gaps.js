// Times between two epochs that nobody measured. A line that crossed one would show numbers that nobody counted.

import { seconds } from "./times.js";
import { count } from "./words.js";

const MOST_GAPS = 3; // named; of more, the newest

// Return the times that nobody measured, as pairs [start, end] in seconds. Args: the answer of /v1/streams/{s}, or a
// stream of the overview.
export const gapsOf = ({ unmeasured = [] }) => unmeasured.map(({ start, end }) => [seconds(start), seconds(end)]);

// Return a sentence about what a number does not hold; empty without gaps. Args: gaps, [{start, end}], as answers name them.
export function gapsInWords(gaps, times) {
  const named = gaps.slice(-MOST_GAPS).map(({ start, end }) => times.onPage(times.period(seconds(start), seconds(end))));
  const more = gaps.length > MOST_GAPS ? [`${count(gaps.length - MOST_GAPS)} times before`] : [];
  return gaps.length ? `Not measured, and in no number here: ${[...more, ...named].join("; ")}.` : "";
}

// Return the places of the points after which a line breaks: a gap lies between the ends of a point and the next one.
// Args: ends, of points over time, in seconds; gaps, pairs [start, end].
export function breaksAfter(ends, gaps) {
  if (!gaps.length) return [];
  const crosses = (from, to) => gaps.some(([start, end]) => start < to && end > from);
  return ends.slice(1).flatMap((to, i) => (crosses(ends[i], to) ? [i] : []));
}

// Return the places of the points with breaks on both sides: no line is drawn there.
export function pointsAlone(count, breaks) {
  const after = new Set([-1, ...breaks, count - 1]);
  return [...after].filter((i) => i >= 0 && i < count && after.has(i - 1));
}
