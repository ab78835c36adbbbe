// uPlot's options for axes of time. Ticks are at round times of UTC, or at the starts of calendar days.

const DAY = 86400;
const MONTH = 30 * DAY, YEAR = 365 * DAY; // approximate lengths, for choosing the distance of ticks

// Formats of labels, in uPlot's columns: the least distance of ticks in seconds, the format, and the text that is
// added on a second line when the year or the day changes.
const DAY_CHANGES = [null, "\n{D} {MMM}", null, null, null, 1];
const TIME_LABELS = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", ...DAY_CHANGES],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", ...DAY_CHANGES],
];

export const utcAxis = { values: TIME_LABELS };

const DISTANCES = [
  ...[1, 2, 3, 4, 7, 14].map((days) => days * DAY),
  ...[1, 2, 3, 6].map((months) => months * MONTH),
  ...[1, 2, 5, 10, 20, 50, 100].map((years) => years * YEAR),
];

// Return an axis with ticks at the starts of days. If that is too many ticks, they are at Mondays, or at the first
// days of months or years. Args: bins, which are calendar days; date(day), returns a text such as "29 Mar 2013".
export function dayAxis(bins, date) {
  return {
    incrs: DISTANCES,
    splits: (u, axis, from, to, distance) => {
      const first = bins.of(from);
      return Array.from({ length: bins.of(to) - first + 1 }, (_, i) => first + i)
        .filter((day) => bins.start(day) >= from && bins.start(day) < bins.start(day + 1) && isRound(day, distance))
        .map((day) => bins.start(day));
    },
    values: (u, ticks, axis, space, distance) => ticks.map((tick, i) => {
      const [day, month, year] = date(bins.of(tick)).split(" ");
      if (distance >= YEAR) return year;
      const changed = i === 0 || date(bins.of(ticks[i - 1])).split(" ")[2] !== year;
      return (distance >= MONTH ? month : `${day} ${month}`) + (changed ? `\n${year}` : "");
    }),
  };
}

function isRound(day, distance) {
  if (distance < MONTH) return (day + 3) % Math.round(distance / DAY) === 0; // day 4 since 1970-01-01 was a Monday
  const at = new Date(day * DAY * 1000);
  const months = distance < YEAR ? Math.round(distance / MONTH) : 12 * Math.round(distance / YEAR);
  return at.getUTCDate() === 1 && (at.getUTCFullYear() * 12 + at.getUTCMonth()) % months === 0;
}
