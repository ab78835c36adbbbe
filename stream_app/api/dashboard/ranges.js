// The ranges of time that a reader can choose, and how many bins each point of a chart counts. Lengths are in
// seconds.

const HOUR = 3600, DAY = 86400;
// No step is between three hours and a day, because steps of half a day mostly show that nights are quiet.
const STEPS = [1, 5, 10, 15, 30, 60, 300, 600, 900, 1800, HOUR, 3 * HOUR, DAY, 7 * DAY, 28 * DAY];
export const PRESETS = [
  { name: "1 year", seconds: 365 * DAY },
  { name: "90 days", seconds: 90 * DAY },
  { name: "30 days", seconds: 30 * DAY },
  { name: "7 days", seconds: 7 * DAY },
  { name: "24 hours", seconds: DAY },
  { name: "6 hours", seconds: 6 * HOUR },
  { name: "1 hour", seconds: HOUR },
  { name: "15 minutes", seconds: 900 },
];

// What a bar can count besides bins: calendar units, as the service's steps.
export const CALENDAR = { day: { days: 1 }, week: { days: 7 }, month: { months: 1 }, quarter: { months: 3 }, year: { months: 12 } };

// Return the ranges to offer: the whole stream and at most three shorter ranges of at least 12 bins.
export function presets(whole, binSeconds) {
  const fitting = PRESETS.filter(
    ({ seconds }) => seconds < whole.end - whole.start && seconds >= 12 * binSeconds && seconds % binSeconds === 0,
  );
  return [{ name: "all", seconds: null }, ...fitting.slice(0, 3)];
}

// Return how many bins each point counts. Points have a familiar length of time, such as an hour, and there are at
// most ``most`` of them.
export function chooseStep({ start, end }, binSeconds, most) {
  if (binSeconds === null) return [1, 7, 28].find((step) => (end - start) / (step * DAY) <= most) ?? Math.ceil((end - start) / DAY / most);
  const fits = (seconds) => seconds % binSeconds === 0 && (end - start) / seconds <= most;
  if (fits(binSeconds)) return 1;
  const chosen = STEPS.find((seconds) => seconds > binSeconds && fits(seconds));
  return chosen ? chosen / binSeconds : Math.ceil((end - start) / binSeconds / most);
}

// Return the length of the longest of some spans, at most a day: the others are cut off by the ends of a range.
export const longest = (start, end) => Math.min(Math.max(...end.map((to, i) => to - start[i])), DAY);

// Return how many points fit into a chart of this width, in pixels.
export const roomFor = (width) => Math.max(60, Math.min(400, width / 2.5));

// Return how many points of a curve fit there. Args: most, the largest number that the service gives.
export const pointsFor = (width, most = Infinity) => Math.min(Math.round(Math.min(Math.max(width / 2, 240), 600)), most);

// Return the lengths of windows that the rate panel offers: several bins, at most half of the stream. Args: fit, of which
// they are multiples.
export function windows(whole, binSeconds, fit) {
  const lengths = [60, 300, 900, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY];
  return lengths.filter((seconds) => seconds % fit === 0 && seconds > binSeconds && 2 * seconds <= whole.end - whole.start).slice(0, 5);
}

// Return an instant at which a step begins. Weeks begin on Mondays, as those of the service do, if no bin begins before
// that midnight and ends after it.
export function roundTime(stepSeconds, binSeconds) {
  const monday = 4 * DAY; // the first one since 1970
  return stepSeconds % (7 * DAY) === 0 && monday % binSeconds === 0 ? monday : 0;
}

// Return the whole steps of a range, from its first round time on, so that slices start at round times too.
export function snapRange({ start, end }, stepSeconds, binSeconds, first) {
  if (!stepSeconds) return { start, end };
  const origin = roundTime(stepSeconds, binSeconds);
  const round = Math.ceil((start - origin) / stepSeconds) * stepSeconds + origin;
  const from = Math.max(round, first);
  const steps = Math.floor((end - from) / stepSeconds);
  return steps ? { start: from, end: from + steps * stepSeconds } : { start, end };
}
