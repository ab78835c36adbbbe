// The page of a board: panels of several streams under one range of time. The configuration declares a board, or the
// address of the page describes it; then no server stores or sees it.
//
// One connection tells which streams have released something. Panels of these streams are then loaded again, each at
// most once a second.

import { listAnnotations } from "./annotations.js";
import { ApiError, followChanges, get, serverNow, streamPath, useKey } from "./api.js";
import { boardOf, describedBoard } from "./boards/address.js";
import { edit } from "./boards/editor.js";
import { annotationsAmong, BoardLine, wholeOf } from "./boards/lines.js";
import { Slot } from "./boards/slots.js";
import { at, bold, make, say } from "./elements.js";
import { setConnection, watchTheme } from "./frame.js";
import { LoadedPanels, REFRESH_MS } from "./panel_loading.js";
import { PRESETS } from "./ranges.js";
import { Watched } from "./stream_state.js";

const RETRY_MS = 5000;
const ALERTS_MS = 3000; // a rule is decided shortly after the release that it is about
const FAR_PX = 100_000; // every panel is loaded, also those out of sight: a board is printed as a whole
const LATEST = ["24 hours", "7 days", "30 days", "90 days", "1 year"];

const address = new URL(window.location.href);
const [, place, name] = address.pathname.split("/").map(decodeURIComponent);
const isFramed = place === "embed";
const sources = new Map(); // what the page knows of each stream, by name
const shown = new LoadedPanels((panel) => panel.page.detail?.released_until, FAR_PX);
let slots = [];
let unfollow = () => {};

const board = {
  declared: null,
  preset: address.searchParams.get("range"), // the range that the reader chose; null: as declared
  closer: null, // a part of it, to look closer: [start, end]
  speak: (text) => { at("spoken").textContent = text; },
  load: (panel) => slots.filter((slot) => slot.panel && slot.declared.name === panel).forEach((slot) => shown.load(slot.panel, true)),
  annotationsOf: (lines) => numberedAsListed(lines),
  openStream(stream, keys) {
    const query = new URLSearchParams(keys.map((key) => ["key", key]));
    if (!isFramed) window.location.assign(`/streams/${encodeURIComponent(stream)}?${query}`);
  },
  zoom(start, end) {
    this.closer = start === null ? null : widened(start, end);
    showRanges();
    loadAll();
  },
  // Return the range of a panel: all that its lines have, or a newest part, which ends for all panels at the same time.
  rangeOf(panel, lines) {
    if (this.closer) return { start: this.closer[0], end: this.closer[1] };
    const { start: first, end } = wholeOf(slots.flatMap((slot) => slot.lines));
    const asked = PRESETS.find(({ name: one }) => one === this.preset)?.seconds;
    const seconds = this.preset === "all" ? null : asked ?? panel.range_seconds ?? this.declared.range_seconds;
    return seconds === null ? wholeOf(lines) : { start: Math.max(end - seconds, first), end };
  },
};

// Return a range that holds a whole point of every chart.
function widened(start, end) {
  const lengths = slots.filter(({ panel }) => panel).map(({ page }) => page.common ?? page.binSeconds ?? 86400);
  const missing = Math.max(2 * Math.max(...lengths) - (end - start), 0);
  return [start - missing / 2, end + missing / 2];
}

// Return the annotations of lines, with their numbers in the list of the page.
function numberedAsListed(lines) {
  const all = listed();
  const own = annotationsAmong(board.declared.annotations, lines);
  return own.map((one) => ({ ...one, number: all.find(({ start, end, text }) => start === one.start && end === one.end && text === one.text)?.number ?? one.number }));
}

const listed = () => annotationsAmong(board.declared.annotations, slots.flatMap((slot) => slot.lines));
const loadAll = () => slots.forEach((slot) => slot.panel && shown.load(slot.panel));

// ---- streams --------------------------------------------------------------------------------------

function sourceOf(stream) {
  if (!sources.has(stream)) sources.set(stream, { stream, detail: null, refused: null, watched: new Watched(serverNow()), behind: true, readAt: -Infinity });
  return sources.get(stream);
}

// Read what a stream is, and pass it to its lines.
async function read(source) {
  source.behind = false;
  source.readAt = performance.now();
  let isNew = true;
  try {
    const base = streamPath(source.stream);
    const lines = slots.flatMap((slot) => slot.lines).filter((line) => line.source === source);
    const ruled = lines.some((line) => line.panel.show === "alerts");
    const [detail, marks, changes] = await Promise.all([get(base), ...(ruled ? [get(`${base}/marks`), get(`${base}/transitions`)] : [])]);
    const state = JSON.stringify([detail.generation, detail.seq, detail.start, marks?.alerts]);
    isNew = state !== source.state;
    Object.assign(source, { detail, refused: null, state, ruled });
    for (const line of lines) {
      const [asked] = line.keys;
      await line.take(detail);
      if (asked !== undefined && !line.keys.length) line.unknownKey = asked;
      if (ruled) Object.assign(line, { alerts: marks.alerts, transitions: changes.transitions, transitionsKept: changes.kept });
    }
  } catch (error) {
    source.behind = true;
    if (!(error instanceof ApiError)) return;
    if (error.status === 401 || error.status === 403) return showRefused();
    if (error.status === 404) source.refused = `There is no stream “${source.stream}” here. Its name may be misspelled, your key may not open it, or it has not begun yet. This page looks again every few seconds.`;
    else if (!source.detail) source.refused = `${error.message}. This page looks again every few seconds.`;
  }
  fill(source, isNew);
}

// Show what is known of a stream in the panels about it. Args: isNew, whether loaded panels no longer show the newest.
function fill(source, isNew = true) {
  for (const slot of slots.filter(({ lines }) => lines.some((line) => line.source === source))) {
    const before = slot.panel;
    const panel = slot.fill();
    if (before && before !== slot.panel) shown.remove(before);
    if (panel) shown.add(panel);
  }
  if (isNew) shown.mark(({ page }) => (page.lines ?? [page]).some((line) => line.source === source));
  shown.loadRested();
  showAround();
  tick();
}

function onChange({ stream, generation, seq, private: known }) {
  const source = sourceOf(stream);
  source.behind = true;
  if (source.detail && (generation !== source.detail.generation || seq > source.detail.seq)) source.watched.moved = serverNow();
  if (source.detail) source.detail.private = known;
}

function follow() {
  unfollow();
  const streams = [...sources.keys()];
  if (!streams.length) return setConnection("live");
  unfollow = followChanges(streams, {
    onChange,
    onState: (state) => {
      setConnection(state === "closed" ? "lost" : state);
      // The page may have missed releases, or its key may be revoked: the next questions tell.
      if (state !== "connecting") sources.forEach((source) => { source.behind = true; });
      if (state === "closed") setTimeout(follow, RETRY_MS);
    },
  });
  return undefined;
}

// ---- the page -------------------------------------------------------------------------------------

function tick() {
  slots.forEach((slot) => slot.tick(serverNow()));
}

// Show what the panels share: what the streams count, annotations, and whether a stream is not private.
function showAround() {
  const open = [...sources.values()].filter(({ detail }) => detail && !detail.private).map(({ detail }) => detail.title);
  at("not-private").hidden = !open.length;
  say(at("not-private"), open.length ? `Not private: ${open.join(", ")}. Together, all values shown from this source reveal too much to protect anybody.` : "");
  const meant = [...sources.values()].filter(({ detail }) => detail?.warning).map(({ detail }) => make("li", {}, bold(detail.title), `: ${detail.warning}`));
  const words = meant.map((one) => one.textContent).join("");
  at("meaning-box").hidden = !meant.length;
  if (at("meanings").textContent !== words) {
    at("meanings").replaceChildren(...meant);
  }
  const first = slots.flatMap((slot) => slot.lines).find(({ detail }) => detail);
  if (first) listAnnotations(at("annotations"), listed(), first.times);
}

function showRanges() {
  const host = at("ranges");
  if (!host) return;
  const chosen = board.closer ? "closer" : board.preset ?? "";
  const offered = [["", "As set"], ...LATEST.map((one) => [one, one]), ["all", "All"], ...(board.closer ? [["closer", "Closer"]] : [])];
  host.querySelectorAll("label").forEach((label) => label.remove());
  host.append(...offered.map(([value, text]) => make("label", {}, make("input", { type: "radio", name: "range", value, checked: value === chosen }), make("span", {}, text))));
}

function chooseRange({ target }) {
  if (target.value === "closer") return;
  Object.assign(board, { preset: target.value || null, closer: null });
  const url = new URL(window.location.href);
  if (board.preset) url.searchParams.set("range", board.preset);
  else url.searchParams.delete("range");
  window.history.replaceState(null, "", url);
  showRanges();
  loadAll();
}

// Show a board in place of the one before.
function show(declared) {
  board.declared = declared;
  slots.forEach((slot) => slot.panel && shown.remove(slot.panel));
  at("board-name").textContent = declared.title;
  document.title = `${declared.title} · Private counts`;
  slots = declared.panels.map((panel) => {
    const lines = panel.streams.map((line) => Object.assign(new BoardLine(board, panel, line), { source: sourceOf(line.split("/")[0]) }));
    for (const line of lines) line.detail = line.source.detail;
    return new Slot(board, panel, lines, isFramed);
  });
  const wanted = new Set(slots.flatMap((slot) => slot.lines.map((line) => line.source)));
  for (const [stream, source] of sources) if (!wanted.has(source)) sources.delete(stream);
  at("panels").replaceChildren(...slots.map(({ element }) => element));
  at("empty").hidden = slots.length > 0;
  document.body.classList.toggle("no-panels", !slots.length);
  showRanges();
  sources.forEach(read);
  follow();
}

function showRefused() {
  unfollow();
  setConnection("lost");
  slots = [];
  document.body.classList.add("no-panels");
  at("panels").replaceChildren(make("p", { className: "card", role: "alert" }, "The key of this address opens nothing here. It may be misspelled or revoked: ask whoever runs this service for a new one."));
  return undefined;
}

async function showUnknown() {
  const { boards } = isFramed ? { boards: [] } : await get("/v1/boards");
  setConnection("live");
  document.body.classList.add("no-panels");
  at("board-name").textContent = `There is no board “${name}” here`;
  const links = boards.map((one) => make("li", {}, make("a", { href: `/boards/${encodeURIComponent(one.board)}` }, one.title)));
  at("panels").replaceChildren(make("div", { className: "card" },
    make("p", {}, "The address may be misspelled, or your key may not open it."),
    ...(links.length ? [make("p", {}, "Boards that you can open:"), make("ul", {}, ...links)] : [])));
}

// Return the panels that the address asks for: all, or one for a frame.
function asked(declared) {
  const one = address.searchParams.get("panel");
  const panels = one === null ? declared.panels : declared.panels.filter((panel) => panel.name === one);
  if (!panels.length && one !== null) say(at("empty"), `This board has no panel “${one}”. It has: ${declared.panels.map((panel) => panel.name).join(", ")}.`);
  document.body.classList.toggle("one-panel", panels.length === 1);
  return { ...declared, panels };
}

// Show the board that the address describes, and let the reader change it.
async function startDescribed() {
  const described = describedBoard();
  at("described").hidden = !described.panels.length;
  await edit(described, show);
}

async function start() {
  try {
    if (!name) return await startDescribed();
    const declared = asked(boardOf(await get(`/v1/boards/${encodeURIComponent(name)}`)));
    show(declared);
    if (!isFramed) at("change").href = `/boards#${new URLSearchParams({ board: JSON.stringify(declared) })}`;
    if (!isFramed) at("change").hidden = false;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return showUnknown();
    if (error instanceof ApiError && [401, 403].includes(error.status)) return showRefused();
    setConnection("lost");
    setTimeout(start, RETRY_MS);
  }
  return undefined;
}

if (isFramed) useKey(new URLSearchParams(address.hash.slice(1)).get("key"));
const restyle = () => slots.forEach((slot) => slot.panel?.restyle());
watchTheme(restyle);
// Paper is light, and charts read the theme's colours when they are made.
const wear = (theme) => {
  document.documentElement.dataset.theme = theme;
  restyle();
};
let onScreen = "light";
window.addEventListener("beforeprint", () => {
  onScreen = document.documentElement.dataset.theme;
  wear("light");
});
window.addEventListener("afterprint", () => wear(onScreen));
at("ranges")?.addEventListener("change", chooseRange);
window.addEventListener("hashchange", () => window.location.reload());
document.addEventListener("visibilitychange", () => sources.forEach((source) => { source.behind = true; }));
setInterval(() => {
  if (document.hidden) return;
  tick();
  const now = performance.now();
  for (const source of sources.values()) {
    const waited = now - source.readAt;
    if (source.behind ? waited > (source.detail ? REFRESH_MS : RETRY_MS) : source.ruled && waited > ALERTS_MS) read(source);
  }
  shown.loadRested();
}, REFRESH_MS);
start();
