// A board as a text: in the address of a page, behind the #, where no server sees it, and as configuration to copy.

const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const MOST_PANELS = 24;
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

// Return a board with every field. Args: said, as the service answers it, or as an address has it, in which fields may
// be missing or of any kind.
export function boardOf(said) {
  const text = (value) => (typeof value === "string" ? value : "");
  const list = (value) => (Array.isArray(value) ? value : []);
  const range = (value) => (typeof value === "number" && value > 0 ? value : null);
  const taken = new Set();
  const free = (number) => (list(said.panels).some(({ name } = {}) => name === `panel-${number}`) || taken.has(`panel-${number}`) ? free(number + 1) : `panel-${number}`);
  const panels = list(said?.panels).slice(0, MOST_PANELS).filter((panel) => list(panel?.streams).length).map((panel, i) => {
    const own = NAME.test(text(panel.name)) && !taken.has(panel.name) ? panel.name : free(i + 1);
    taken.add(own);
    const measure = ["sum", "mean"].includes(panel.measure) ? panel.measure : "count";
    return { name: own, title: text(panel.title), show: text(panel.show), streams: list(panel.streams).map(text).filter(Boolean).slice(0, 6), measure, range_seconds: range(panel.range_seconds) };
  });
  const annotations = list(said?.annotations).filter((one) => !Number.isNaN(Date.parse(one?.start)))
    .map((one) => ({ start: one.start, end: Number.isNaN(Date.parse(one.end)) ? null : one.end, text: text(one.text), link: /^https?:\/\//.test(text(one.link)) ? one.link : "" }));
  return { title: text(said?.title) || "Your board", range_seconds: range(said?.range_seconds), panels, annotations };
}

// Return the board that the address of this page describes; an empty one if it describes none.
export function describedBoard() {
  const text = new URLSearchParams(window.location.hash.slice(1)).get("board");
  if (text === null) return { ...boardOf({}), unreadable: false };
  try {
    return { ...boardOf(JSON.parse(text)), unreadable: false };
  } catch {
    return { ...boardOf({}), unreadable: true };
  }
}

// Put a board into the address of this page.
export function describe(board) {
  const url = new URL(window.location.href);
  url.hash = new URLSearchParams({ board: JSON.stringify(boardOf(board)) }).toString();
  window.history.replaceState(null, "", url);
}

// Return a board as a part of a configuration. Texts are written as JSON, which YAML reads.
export function configurationOf({ title, range_seconds: range, panels, annotations }) {
  const written = JSON.stringify;
  const lines = ["boards:", `  ${nameFor(title)}:`, `    title: ${written(title)}`];
  if (range !== null) lines.push(`    range: ${durationOf(range)}`);
  lines.push("    panels:");
  for (const panel of panels) {
    const more = [panel.measure === "count" ? "" : `measure: ${panel.measure}`, panel.title && `title: ${written(panel.title)}`, panel.range_seconds === null ? "" : `range: ${durationOf(panel.range_seconds)}`];
    lines.push(`      ${panel.name}: {${[`show: ${written(panel.show)}`, `streams: [${panel.streams.map(written).join(", ")}]`, ...more].filter(Boolean).join(", ")}}`);
  }
  if (annotations.length) lines.push("    annotations:");
  for (const { start, end, text, link } of annotations) {
    const when = end === null ? `at: ${start}` : `from: ${start}, to: ${end}`;
    lines.push(`      - {${[when, `text: ${written(text)}`, link && `link: ${written(link)}`].filter(Boolean).join(", ")}}`);
  }
  return `${lines.join("\n")}\n`;
}

export function durationOf(seconds) {
  const [unit, size] = UNITS.find(([, one]) => seconds % one === 0) ?? ["s", 1];
  return `${Math.max(1, Math.round(seconds / size))}${unit}`;
}

const nameFor = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 63) || "board";
