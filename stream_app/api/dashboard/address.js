// Says what a page's address asks for that the stream does not have. The page then shows something else, and readers
// must not take it for what they asked for.

import { at, make } from "./elements.js";
import { PRESETS, presets, windows } from "./ranges.js";
import { seconds } from "./times.js";
import { length } from "./words.js";
import { isZone } from "./zone.js";

const MOST_LINKS = 5;
const VIEWS = [["unbiased", "Best"], ["first_published", "First"], ["consistent", "Whole"]];

// Show a line for each choice in the address that the page cannot show; nothing once the reader has chosen something.
export function showUnknownChoices(page) {
  const lines = page.asked ? CHECKS.map((check) => check(page)).filter(Boolean) : [];
  const host = at("unknown-choices");
  const said = JSON.stringify(lines);
  if (host.dataset.said === said) return; // or a link that has the focus would lose it
  host.dataset.said = said;
  host.hidden = !lines.length;
  host.replaceChildren(...lines.map(({ text, links }) => make("p", {}, text, ...links.flatMap(linked))));
}

// Return the nodes of a link, with what separates it from the text or the link before it.
const linked = ([name, chosen], i) => [i ? ", " : " Choose: ", make("a", { href: addressWith(chosen) }, name)];

// Return this page's address with other choices. Args: chosen, a text for each changed name; null: without the name.
function addressWith(chosen) {
  const url = new URL(window.location.href);
  for (const [name, value] of Object.entries(chosen)) {
    url.searchParams.delete(name);
    if (value !== null) url.searchParams.set(name, value);
  }
  return url.href;
}

// Each check returns what is unknown and what is shown instead, as a text, and links to what exists; or null.
const CHECKS = [unknownKeys, unknownView, unknownRange, unknownEnds, unknownMeasure, unknownGrouping, unknownZone, unknownWindow, unknownEpsilon, unknownHistogram];

function unknownKeys(page) {
  const { axes } = page.detail;
  const unknown = page.asked.getAll("key").filter((key) => !page.keys.includes(key)).map(quoted);
  if (!unknown.length) return null;
  const shown = page.keys.length ? page.group(MOST_LINKS) : axes?.keys ? "all keys together" : "all events";
  const which = axes?.keys ? `This stream has no key ${unknown.join(", ")}.` : `This stream has no keys, so ${unknown.join(", ")} is unknown.`;
  const some = (axes?.first_keys ?? []).slice(0, MOST_LINKS).map((key) => [key, { key }]);
  const rest = axes?.keys > MOST_LINKS ? [[`${(axes.keys - MOST_LINKS).toLocaleString("en")} more under “Keys”`, { key: null }]] : [];
  return { text: `${which} Shown: ${shown}.`, links: [...some, ...rest] };
}

function unknownView(page) {
  const asked = page.asked.get("view");
  if (!asked || asked === page.view) return null;
  const known = VIEWS.some(([name]) => name === asked);
  const why = known ? "Values as first published exist for the count of all keys together only." : `There is no view ${quoted(asked)}.`;
  return { text: `${why} Shown: the best values.`, links: known ? [] : VIEWS.filter(([name]) => name !== "first_published" || !page.neverRevised).map(([view, title]) => [title, { view }]) };
}

function unknownRange(page) {
  const asked = page.asked.get("range");
  if (!asked || !page.detail.released_until || page.closer) return null;
  const whole = page.whole();
  const offered = presets(whole, page.bins.length);
  if (offered.some(({ name }) => name === asked) || coversAll(asked, whole)) return null;
  return { text: `There is no range ${quoted(asked)} for this stream. Shown: all of it.`, links: offered.map(({ name: range }) => [range, { range }]) };
}

// A young stream is shorter than a range that an older address names; then all of it is that range.
const coversAll = (name, { start, end }) => PRESETS.some((one) => one.name === name && one.seconds >= end - start);

function unknownEnds(page) {
  const [from, to] = ["from", "to"].map((name) => page.asked.get(name));
  if ((from === null && to === null) || !page.detail.released_until) return null;
  const whole = page.whole();
  const links = [["All of it", { from: null, to: null, range: null }]];
  if (!page.closer) return { text: `From ${quoted(from ?? "")} to ${quoted(to ?? "")} is no range of time. Shown: ${shownRange(page)}.`, links };
  if (page.closer[0] < whole.end && page.closer[1] > whole.start) return null;
  return { text: `Nothing is released from ${from} to ${to}. Shown: ${shownRange(page)}.`, links };
}

function shownRange(page) {
  const { start, end } = page.range();
  return page.times.onPage(page.times.period(start, end));
}

function unknownMeasure({ asked, measures, measure }) {
  const name = asked.get("show");
  if (!name || measure.name === name) return null;
  const links = measures.length > 1 ? measures.map((one) => [one.title, { show: one.name }]) : [];
  return { text: `This stream has no ${quoted(name)} to show. Shown: ${measure.title}.`, links };
}

function unknownGrouping({ asked, detail }) {
  const [name, fields] = [asked.get("by"), detail.axes?.key_fields?.map(({ field }) => field) ?? []];
  if (!name || name === "*" || fields.includes(name)) return null;
  return { text: `There is no key field ${quoted(name)} to group by. Shown: ${fields.length ? `groups by ${fields[0]}` : "each key"}.`, links: fields.map((by) => [by, { by }]) };
}

function unknownZone({ asked, detail, times }) {
  const name = asked.get("tz");
  if (!name || name === times.zone) return null;
  const why = isZone(name) ? `The bins of this stream are calendar days of ${detail.timezone}.` : `${quoted(name)} is no time zone that this browser knows.`;
  return { text: `${why} Shown: times of ${times.zone}.`, links: [] };
}

function unknownWindow(page) {
  const asked = page.asked.get("window");
  if (!asked || !page.detail.released_until) return null;
  const offered = windows(page.whole(), page.bins.length, page.windowBin);
  if (!offered.length || offered.includes(Number(asked))) return null;
  return { text: `There is no window of ${quoted(asked)} seconds for the rate. Shown: another length.`, links: offered.map((window) => [length(window), { window }]) };
}

function unknownEpsilon({ asked, epsilon }) {
  const text = asked.get("epsilon");
  return text === null || epsilon !== null ? null : { text: `${quoted(text)} is no epsilon. Shown: a quarter of the stream's own.`, links: [] };
}

function unknownHistogram({ asked, detail, histogram }) {
  const [name, keys] = [asked.get("of"), detail.windows?.first_keys ?? []];
  if (!name || histogram === name) return null;
  const shown = keys.length ? `the one of ${keys[0]}` : "what the stream has";
  return { text: `There is no histogram of ${quoted(name)}. Shown: ${shown}.`, links: keys.slice(0, MOST_LINKS).map((of) => [of, { of }]) };
}

const quoted = (text) => `“${text}”`;
