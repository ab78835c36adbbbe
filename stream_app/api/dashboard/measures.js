// What the charts of a stream show: the number of its events; and if the stream adds up an amount, its total and its mean.

import { COUNTS, decimals, places, sentence } from "./words.js";

const MOST_MEANS = 100; // points of a chart; the service takes some milliseconds for each mean

// Return the measures of a stream, the one of its headline first. Args: the answer of /v1/streams/{s}.
// A measure has: name, as in the address; title, for the control and the beginning of headings; running, a heading;
// counted, what columns of its values are called; numbers, how to write values; single, series and keys, the paths of
// the service's answers. It may have: rates, whether a value per time has a meaning; most, the largest number of points;
// enough(one), whether the events are enough for a value {value, interval}.
export function measuresOf(detail) {
  if (!known.has(detail)) known.set(detail, detail.sum ? [total(detail.sum), mean(detail.sum), events(detail)] : [events(detail)]);
  return known.get(detail);
}
const known = new WeakMap();

function events({ noun, counts }) {
  return {
    name: "count", title: sentence(noun), running: counts === "users" ? "Running count, summed over epochs" : "Running count", counted: "Count",
    numbers: COUNTS, single: "count", series: "series", keys: "keys", rates: true, more: "more", fewer: "fewer",
  };
}

function total({ field, unit }) {
  return {
    name: "sum", title: `Total ${field}`, running: `Running total of ${field}`, counted: "Total",
    numbers: decimals(places(unit)), single: "sum", series: "sum/series", keys: "sum/keys", rates: true, more: "higher", fewer: "lower",
  };
}

// A mean of few events says nothing, and is often far from every other point of a chart. So a mean is shown only if
// its interval is at most a quarter as wide as the range of the amounts.
function mean({ field, unit, min, max }) {
  const fine = Math.max(places(unit), Math.min(2, 2 - Math.floor(Math.log10(unit))), 0);
  return {
    name: "mean", title: `Mean ${field}`, running: `Running mean of ${field}`, counted: "Mean",
    numbers: { ...decimals(fine), none: "too few events" }, single: "mean", series: "mean/series", keys: "mean/keys", most: MOST_MEANS, more: "higher", fewer: "lower",
    enough: ({ value, interval: [low, high] }) => value !== null && high - low <= (max - min) / 4,
  };
}
