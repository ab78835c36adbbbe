// Examples of questions that this service can answer: with a stream that exists, times that are edges of its bins, and
// keys that it has.

const MOST_BINS = 24; // in the range of an example

// What an example needs of a stream, in words for a reader whose streams all lack it.
const NEEDS = {
  release: [({ running }) => running, "a first release"],
  tree: [({ running, branching }) => running && branching.length, "a tree of counts"],
  keys: [({ running, axes }) => running && axes?.keys, "keys"],
  values: [({ running, axes }) => running && axes?.edges, "a value"],
  windows: [({ running, windows }) => running && windows, "tumbling windows"],
  sum: [({ running, sum }) => running && sum, "a sum"],
  sumKeys: [({ running, sum, axes }) => running && sum && axes?.keys, "a sum and keys"],
  any: [() => true, "streams"],
};

// Return whether every example has a stream among these.
export const sufficeForAll = (details) => Object.values(NEEDS).every(([fits]) => details.some(fits));

// The example of each route: what it needs; the query; what is special about the command.
const EXAMPLES = {
  "/v1/streams/{stream}": ["any"],
  "/v1/streams/{stream}/count": ["release", range],
  "/v1/streams/{stream}/series": ["release", (detail) => [["kind", "bin"], ...range(detail)], { also: ["as CSV", "-H 'Accept: text/csv'"] }],
  "/v1/streams/{stream}/keys": ["keys", (detail) => [...range(detail), ["limit", 5]]],
  "/v1/streams/{stream}/keys/list": ["keys", ({ axes }) => [["contains", axes.first_keys[0]], ["limit", 5]]],
  "/v1/streams/{stream}/preview": ["release", (detail) => [["epsilon", 0.5], ...range(detail)]],
  "/v1/streams/{stream}/sum": ["sum", range],
  "/v1/streams/{stream}/mean": ["sum", range],
  "/v1/streams/{stream}/sum/series": ["sum", (detail) => [["kind", "bin"], ...range(detail)]],
  "/v1/streams/{stream}/mean/series": ["sum", (detail) => [["kind", "running"], ...range(detail)]],
  "/v1/streams/{stream}/sum/keys": ["sumKeys", (detail) => [...range(detail), ["limit", 5]]],
  "/v1/streams/{stream}/mean/keys": ["sumKeys", (detail) => [...range(detail), ["limit", 5]]],
  "/v1/streams/{stream}/cdf": ["values", range],
  "/v1/streams/{stream}/cdfs": ["values", range],
  "/v1/streams/{stream}/quantile": ["values", (detail) => [["q", 0.5], ["q", 0.9], ...range(detail)]],
  "/v1/streams/{stream}/quantiles": ["values", (detail) => [["q", 0.5], ["q", 0.9], ...range(detail)]],
  "/v1/streams/{stream}/heat": ["values", range],
  "/v1/streams/{stream}/window": ["windows", ({ windows }) => (windows.keys ? [["key", windows.first_keys[0]]] : [])],
  "/v1/streams/{stream}/nodes": ["tree", () => [["limit", 10]]],
  "/v1/streams/{stream}/privacy": ["any"],
  "/v1/streams/{stream}/marks": ["any"],
  "/v1/streams/{stream}/transitions": ["any"],
  "/v1/streams/{stream}/events": ["any", () => [["after", 0]], { endless: true }],
  "/v1/changes": ["any", ({ stream }) => [["stream", stream]], { endless: true }],
  "/v1/overview/events": ["none", () => [], { endless: true }],
};

// Return the example of a route: {address, also, endless}; or {lacks}, in words, if no stream can answer it.
// Args: details, answers of /v1/streams/{stream}, of which the first that fits is taken; boards, names of boards.
export function exampleOf(path, details, boards) {
  if (path.includes("{board}")) return boards.length ? at(path.replace("{board}", encoded(boards[0]))) : { lacks: "no board is declared here" };
  const [need, query = () => [], { also, endless = false } = {}] = EXAMPLES[path] ?? [path.includes("{") ? "any" : "none"];
  if (need === "none") return { ...at(path), also, endless };
  const [fits, words] = NEEDS[need];
  const detail = details.find(fits);
  if (!detail) return { lacks: `none of the streams here has ${words}` };
  const asked = path.replace("{stream}", encoded(detail.stream));
  return { ...at(asked + search(query(detail))), also, endless };
}

const at = (path) => ({ address: window.location.origin + path });

// Return the command that asks for an example. It can be pasted into a POSIX shell as it is. Args: key, whether the
// service asks for one; the command then reads it from a variable of the shell, so that no page shows it.
export function commandOf({ address, endless }, key, option = "") {
  const parts = ["curl", endless ? "-N" : "", key ? '-H "Authorization: Bearer $PRIVATE_COUNTS_KEY"' : "", option, `'${address}'`];
  return parts.filter(Boolean).join(" ");
}

// Return the last bins that are released: their start and end are edges of bins.
function range({ start, released_until: end, bin_seconds: bin }) {
  const day = bin === null ? null : new Date(Date.parse(end) - MOST_BINS * bin * 1000);
  const from = day && day > new Date(start) ? day.toISOString().replace(".000Z", "Z") : start;
  return [["start", from], ["end", end]];
}

const search = (query) => (query.length ? `?${query.map(([name, value]) => `${name}=${encoded(String(value))}`).join("&")}` : "");

// Return a text for an address within single quotes of a shell. Colons of times stay, because people read them.
const encoded = (text) => encodeURIComponent(text).replace(/'/g, "%27").replace(/%3A/g, ":");
