// The place of a panel on a board: names of its lines with their states above, and below them the panel, or why there is
// none yet.

import { make, say } from "../elements.js";
import { isConnected } from "../frame.js";
import { Group } from "./lines.js";
import { Alerts } from "../panels/alerts.js";
import { Bins } from "../panels/bins.js";
import { Cdf } from "../panels/cdf.js";
import { Heat } from "../panels/heat.js";
import { Keys } from "../panels/keys.js";
import { OneNumber } from "./number.js";
import { Quantiles } from "../panels/quantiles.js";
import { Rate } from "../panels/rate.js";
import { Running } from "../panels/running.js";
import { BinsTogether, RunningTogether } from "./together.js";
import { stateOf, stateWords } from "../stream_state.js";

// What a panel can show: the word of the configuration, its name for readers, and its classes for one line and several.
export const SHOWS = [
  ["number", "One number", OneNumber],
  ["bins", "Events per bin", Bins, BinsTogether],
  ["running", "Running count", Running, RunningTogether],
  ["rate", "Rate", Rate],
  ["keys", "By key", Keys],
  ["quantiles", "Quantiles over time", Quantiles],
  ["heat", "Heat map", Heat],
  ["cdf", "Distribution", Cdf],
  ["alerts", "Alerts", Alerts],
];

export class Slot {
  // Args: panel, its declaration; lines, of the class BoardLine; isFramed, whether names are links to nowhere.
  constructor(board, panel, lines, isFramed) {
    Object.assign(this, { board, lines, declared: panel, panel: null });
    this.page = lines.length > 1 ? new Group(board, panel, lines) : lines[0];
    this.chips = lines.map(() => make("span", { className: "chip" }));
    this.names = lines.map(({ stream, subject }, i) => {
      const id = `${panel.name}-line-${i + 1}`;
      return isFramed ? make("span", { id }, subject) : make("a", { id, href: `/streams/${encodeURIComponent(stream)}` }, subject);
    });
    const swatch = (place) => make("span", { className: "swatch", "aria-hidden": "true", dataset: { line: place + 1 } });
    const entries = this.names.map((name, i) => make("li", {}, ...(lines.length > 1 ? [swatch(i)] : []), name, this.chips[i]));
    this.subject = make("div", { className: "subject" }, ...(panel.title ? [make("p", { className: "own-title" }, panel.title)] : []), make("ul", {}, ...entries));
    this.words = make("p", { className: "note waiting", role: "status" }, "Loading");
    this.waiting = make("section", { className: "card panel", "aria-label": panel.title || panel.name, "aria-busy": "true" }, this.subject, this.words);
    this.element = make("div", { className: "slot", id: panel.name, dataset: { show: panel.show } }, this.waiting);
  }

  // Show the panel once every line has values; until then, why not. Returns the panel when it is new.
  fill() {
    this.#nameLines();
    const refused = this.#refusal();
    if (refused === null && this.panel) return null;
    if (refused !== null) {
      say(this.words, refused);
      this.waiting.setAttribute("aria-busy", String(refused === "Loading"));
      if (this.panel) this.#replace(this.waiting);
      this.panel = null;
      return null;
    }
    const [, , One, Several] = SHOWS.find(([name]) => name === this.declared.show);
    this.panel = new (this.lines.length > 1 ? Several : One)(this.page);
    const names = [this.panel.heading, ...this.names].map(({ id }) => id);
    this.panel.element.setAttribute("aria-labelledby", names.join(" ")); // headings of several panels are alike
    this.#replace(this.panel.element);
    return this.panel;
  }

  // Say whether each stream is live, late or stopped. This depends on the time, so it is called every second.
  tick(now) {
    this.lines.forEach((line, i) => {
      const { detail, watched } = line.source;
      const { state, text } = detail ? stateOf(detail, now, watched, isConnected()) : { state: "quiet", text: "" };
      this.chips[i].dataset.state = state;
      say(this.chips[i], text);
      if (detail && !detail.released_until && !this.panel) say(this.words, unreleased(line, state));
    });
  }

  #replace(element) {
    element.prepend(this.subject);
    this.element.replaceChildren(element);
  }

  #nameLines() {
    this.names.forEach((name, i) => say(name, this.lines[i].subject));
  }

  // Return why the panel cannot be shown; null if it can.
  #refusal() {
    const shows = SHOWS.find(([name]) => name === this.declared.show);
    if (!shows) return `There is no panel “${this.declared.show}”. Known: ${SHOWS.map(([name]) => name).join(", ")}.`;
    if (this.lines.length > 1 && !shows[3]) return `${shows[1]} shows one stream. Give each stream its own panel.`;
    const missing = this.lines.find(({ source }) => source.refused !== null);
    if (missing) return missing.source.refused;
    if (this.lines.some(({ detail }) => !detail)) return "Loading";
    const young = this.lines.find(({ detail }) => !detail.released_until);
    if (young) return unreleased(young, "waiting");
    for (const line of this.lines) {
      if (line.unknownKey) return `${line.title} has no key “${line.unknownKey}”.`;
      if (line.measure.name !== this.declared.measure) return `${line.title} adds up no amounts, so it has no ${this.declared.measure}.`;
    }
    if (!shows[2].applies(this.lines[0])) return NOT_OFFERED[this.declared.show] ?? "This stream has no such panel.";
    return this.lines.length > 1 ? this.page.refusal() : null;
  }
}

// Return why a line has no values yet. Args: state, as ``stateOf`` returns it.
const unreleased = ({ subject, detail }, state) => `${subject}: ${stateWords(state, detail) || "Nothing is released yet: the first bin is still open."}`;

const NOT_OFFERED = {
  rate: "This stream is too short for a rate: it needs two windows of several bins.",
  keys: "This stream has no keys.",
  alerts: "No alert rule is about this stream.",
  ...Object.fromEntries(["quantiles", "heat", "cdf"].map((show) => [show, "This stream counts no values, so it has no distribution."])),
};
