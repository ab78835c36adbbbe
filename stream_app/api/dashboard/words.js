// Numbers and instants as people read them. Instants are seconds since 1970, shown in UTC.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const count = (value) => whole.format(Math.round(value) || 0);
export const error = (value) => (value >= 100 ? whole.format(value) : fine.format(value));

// An interval is rounded outwards, so that what is shown still holds what was promised.
export const between = (lower, upper) => [whole.format(Math.floor(lower + 1e-9) || 0), whole.format(Math.ceil(upper - 1e-9) || 0)];

export function instant(seconds, binSeconds = HOUR) {
  const date = new Date(seconds * 1000);
  const options = { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" };
  if (binSeconds === null || binSeconds % DAY !== 0) Object.assign(options, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  if (binSeconds !== null && binSeconds < MINUTE) options.second = "2-digit";
  return new Intl.DateTimeFormat("en-GB", options).format(date);
}

export function length(seconds) {
  for (const [size, name] of [[7 * DAY, "week"], [DAY, "day"], [HOUR, "hour"], [MINUTE, "minute"], [1, "second"]]) {
    if (seconds % size === 0) return seconds === size ? name : `${seconds / size} ${name}s`;
  }
  return `${seconds} seconds`;
}

export const seconds = (rfc3339) => Date.parse(rfc3339) / 1000;
