// Writes numbers and lengths of time as text. The file times.js writes instants.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const count = (value) => whole.format(Math.round(value) || 0);
export const error = (value) => (value >= 100 ? whole.format(value) : fine.format(value));

// Return the promise of an epoch: "ε = 1" with spaces that never break, or "(ε 1, δ 1e-6)" for an approximate stream.
export const promise = ({ epsilon, delta }) => (delta ? `(ε\u00a0${epsilon}, δ\u00a0${delta})` : `ε\u00a0=\u00a0${epsilon}`);

// Return what all epochs over a source cost a user together, to follow the promise of an epoch; "" for no sum.
export const soFar = (epsilon, delta) =>
  epsilon ? `, ${delta ? `(ε\u00a0${epsilon}, δ\u00a0${delta})` : epsilon} so far over its source` : "";

// Return what one epoch of a stream costs, and all epochs over its source so far where they add up, in a sentence.
export const costs = (detail) => `${promise(detail)} per epoch${soFar(detail.epsilon_so_far, detail.delta_so_far)}.`;

// Return both ends of an interval of counts as text. They are rounded outwards, so the shown interval contains the
// exact one.
export const between = (lower, upper) => [whole.format(Math.floor(lower + 1e-9) || 0), whole.format(Math.ceil(upper - 1e-9) || 0)];

// Return the words for an interval around a value. "± 12" always means half the width of the interval; an interval
// whose two sides are written differently is written with both.
export function around(value, lower, upper) {
  const [below, above] = [value - lower, upper - value].map(error);
  return above === below ? `±\u00a0${above}` : `−${below} to +${above}`;
}

// Return a text that begins with a capital letter.
export const sentence = (text) => text.replace(/^./, (letter) => letter.toUpperCase());

// Return what the service said instead of an answer, or that it said nothing, as a sentence.
export const failure = (error) => (error.name === "ApiError" ? `${sentence(error.message)}.` : "The service does not answer.");

// Return a number that need not be whole as text: a rate, or a value of events.
export const amount = (value) => (Math.abs(value) >= 1000 ? whole.format(value) : fine.format(value || 0));
export function spread(lower, upper) {
  const size = Math.max(Math.abs(lower), Math.abs(upper), 1e-9);
  const unit = size >= 1000 ? 1 : 10 ** (Math.floor(Math.log10(size)) - 2);
  return [amount((Math.floor(lower / unit + 1e-9) || 0) * unit), amount((Math.ceil(upper / unit - 1e-9) || 0) * unit)];
}

// Return how many decimals a unit has: 2 for 0.01.
export function places(unit) {
  const [digits, power = "0"] = String(unit).split("e");
  return Math.max(0, (digits.split(".")[1] ?? "").length - Number(power));
}

// Return a way to write numbers beside their errors: with the decimals that the error supports, at most ``most``. These
// are the decimals that show the first two digits of half the interval's width. Ends of intervals are rounded outwards.
// Without an interval, a number has all decimals. The terminal has the same rule (shell/numbers.py).
export function decimals(most) {
  const forms = Array.from({ length: most + 1 }, (_, places) => fixed(places));
  const form = ([lower, upper]) => forms[upper > lower ? Math.min(most, Math.max(0, 1 - Math.floor(Math.log10((upper - lower) / 2)))) : most];
  return {
    value: (value, interval = [value, value]) => form(interval).value(value),
    between: (lower, upper) => form([lower, upper]).between(lower, upper),
  };
}

function fixed(places) {
  const text = new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  const size = 10 ** places;
  const outwards = (value, round, dust) => text.format(round(value * size + dust) / size || 0);
  return {
    value: (value) => text.format(Math.round(value * size) / size || 0),
    between: (lower, upper) => [outwards(lower, Math.floor, 1e-6), outwards(upper, Math.ceil, -1e-6)],
  };
}

export const COUNTS = { value: count, between };
export const AMOUNTS = { value: amount, between: spread };

// Return what a range between two edges of a value holds. The first and the last range hold what is beyond them, too.
export function valueRange(edges, i) {
  if (edges.length === 2) return "any value";
  if (i === 0) return `below ${amount(edges[1])}`;
  return i === edges.length - 2 ? `${amount(edges[i])} or more` : `${amount(edges[i])} to ${amount(edges[i + 1])}`;
}

// Return a sentence about values beyond the declared range.
export const beyond = (edges) => `A value below ${amount(edges[0])} counts as ${amount(edges[0])}, and one above ${amount(edges.at(-1))} as ${amount(edges.at(-1))}.`;

export function length(seconds) {
  for (const [size, name] of [[7 * DAY, "week"], [DAY, "day"], [HOUR, "hour"], [MINUTE, "minute"], [1, "second"]]) {
    if (seconds % size === 0) return seconds === size ? name : `${seconds / size} ${name}s`;
  }
  return `${seconds} seconds`;
}

// Return a length of time such as "12 s", "3 min 20 s", "5 h 10 min" or "2 days".
export function wait(seconds) {
  const left = Math.max(0, Math.round(seconds));
  if (left < MINUTE) return `${left} s`;
  if (left < HOUR) return `${Math.floor(left / MINUTE)} min ${left % MINUTE} s`;
  if (left < 2 * DAY) return `${Math.floor(left / HOUR)} h ${Math.floor((left % HOUR) / MINUTE)} min`;
  return `${Math.floor(left / DAY)} days`;
}

export const percent = (share) => `${+(share * 100).toFixed(4)} %`;
