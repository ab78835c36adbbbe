// A stream's page: the current number, the panels and the privacy statement.
//
// Every release arrives as a server-sent event. It changes the number and marks all panels as stale. A stale panel
// that is visible is loaded again at most once a second. So the page is redrawn only once even if thousands of
// bins are released together.

import { showUnknownChoices } from "./address.js";
import { listAnnotations } from "./annotations.js";
import { ApiError, follow, get, serverNow, streamPath } from "./api.js";
import { listenToControls, showControls } from "./controls.js";
import { at, make, say } from "./elements.js";
import { isConnected, setConnection, watchTheme } from "./frame.js";
import { embedAddress, headlineText, readHeadline, showHeadline } from "./headline.js";
import { LoadedPanels, REFRESH_MS } from "./panel_loading.js";
import { Alerts } from "./panels/alerts.js";
import { Bins } from "./panels/bins.js";
import { Cdf } from "./panels/cdf.js";
import { Heat } from "./panels/heat.js";
import { Keys } from "./panels/keys.js";
import { Preview } from "./panels/preview.js";
import { Quantiles } from "./panels/quantiles.js";
import { Rate } from "./panels/rate.js";
import { Running } from "./panels/running.js";
import { Windows } from "./panels/windows.js";
import { showPrivacy } from "./privacy.js";
import { StreamPage } from "./state.js";
import { stateOf, stateWords, Watched } from "./stream_state.js";
import { seconds } from "./times.js";
import { length, promise, sentence, soFar } from "./words.js";

const KINDS = [Bins, Running, Rate, Alerts, Keys, Quantiles, Heat, Cdf, Windows, Preview];
// Choices that change one panel only. All other choices change all panels.
const OWN = [["epsilon", Preview], ["by", Keys], ["window", Rate], ["bars", Bins], ["compare", Bins], ["ending", Windows], ["histogram", Windows], ["cumulative", Windows]];
const PRIVACY_MS = 15000;
const ALERTS_MS = 3000;

const panels = new Map(); // panels by their class
const shown = new LoadedPanels(() => page.detail?.released_until);
let newest = null; // the newest release as JSON, if it is not drawn yet
let refreshing = null;
let privacy = null; // the newest answer of /privacy
let watched = null; // what the page has seen of the stream's releases
let behind = false; // whether a release is newer than page.detail
let unfollow = () => {};

const page = new StreamPage(window.location.href, {
  speak: (text) => { at("spoken").textContent = text; },
  changed: (chosen) => {
    showControls(page);
    showUnknownChoices(page);
    const own = OWN.find(([name]) => name in chosen);
    if (own) shown.load(panels.get(own[1]), true); // load it even if it is not visible, because the reader waits for it
    else KINDS.forEach((kind) => shown.load(panels.get(kind)));
    if ("zone" in chosen || "keys" in chosen) showStream();
    if ("zone" in chosen) refreshPrivacy().catch(() => {});
    if (["keys", "view", "show", "zone", "preset", "closer"].some((name) => name in chosen)) refresh();
  },
});

// ---- the number -----------------------------------------------------------------------------------

// Return whether the chosen view shows counts as they are first published.
function showsFirstPublished() {
  return page.view === "first_published" || (page.view === "unbiased" && page.neverRevised);
}

// Show the newest release in the number. A release has a count per cell since the start of its epoch. This is the
// stream's running count only if the stream has one cell, is in its first epoch, and continues no other stream's
// history. It is the number of the chosen view only if that shows counts as first published. Otherwise the number
// changes when the page reads the summary.
function drawReleased() {
  const text = newest;
  newest = null;
  if (text === null || !page.detail || page.detail.history || page.isPart || page.keys.length || !showsFirstPublished()) return;
  const row = JSON.parse(text);
  if (row.estimate.length !== 1 || page.measures.length > 1 || page.detail.epochs[0]?.epoch !== row.epoch) return;
  const now = { value: row.estimate[0], stderr: Math.sqrt(row.variance), interval: row.interval[0], confidence: row.confidence };
  showHeadline(page, { count: { ...now, whole: now } }, row.end, row.seq);
}

function onRelease(seq, text) {
  if (watched) watched.moved = serverNow();
  page.seq = seq;
  if (newest === null) requestAnimationFrame(drawReleased);
  newest = text;
  behind = true;
  shown.mark();
}

// ---- panels ---------------------------------------------------------------------------------------

// Read the stream's summary. Then load the visible stale panels that may be loaded again by now.
async function refresh() {
  if (refreshing) behind = true;
  if (document.hidden || refreshing) return;
  refreshing = refreshDetail();
  try {
    await refreshing;
    showControls(page);
    addPanels();
    shown.loadRested();
  } catch (error) {
    behind = true;
    if (!(error instanceof ApiError)) setConnection("connecting");
  } finally {
    refreshing = null;
  }
}

async function refreshDetail() {
  const base = streamPath(page.stream);
  behind = false;
  const [detail] = await Promise.all([get(base), readAlerts()]);
  // There are new bins, and panels that were loaded before do not show them.
  if (page.detail && page.detail.seq !== detail.seq) shown.mark();
  // Another generation may have other bins, keys and panels: the page begins anew, with the choices of its address.
  if (page.detail && page.detail.generation !== detail.generation) return window.location.reload();
  await page.take(detail);
  showUnknownChoices(page);
  if (detail.seq < page.seq) {
    // The stream was started anew and counts its seq from 1 again. Follow it from there.
    page.seq = detail.seq;
    shown.mark();
    listen();
  }
  page.seq = Math.max(page.seq, detail.seq);
  showHeadline(page, await newestHeadline(), detail.released_until, detail.seq);
  at("stream-name").textContent = page.fullTitle;
  showSuccession();
  showState();
  return undefined;
}

// Return the numbers for the reader's choice, which may change while the service is asked.
async function newestHeadline() {
  for (;;) {
    const { choice } = page;
    const found = await readHeadline(page);
    if (choice === page.choice) return found;
  }
}

// Say whether the stream is live, complete, late or stopped. This depends on the time, so it is called every second.
function showState() {
  watched ??= new Watched(serverNow());
  const { state, text } = stateOf(page.detail, serverNow(), watched, isConnected());
  at("stream-state").dataset.state = state;
  say(at("stream-state"), text);
  const words = stateWords(state, page.detail);
  at("state-words").hidden = !words;
  say(at("state-words"), words);
  document.body.classList.toggle("waiting", !page.detail.released_until);
  showFirstRelease();
}

// In place of charts, say when the first number comes.
function showFirstRelease() {
  const { released_until: until, next_release: next, start: began } = page.detail;
  at("first-release").hidden = Boolean(until);
  if (until) return;
  const { times } = page;
  const bin = `The first ${times.bin} of this stream begins at ${times.onPage(times.from(seconds(began)))}.`;
  const when = next ? ` Its number comes at ${times.onPage(times.moment(seconds(next)))} at the earliest.` : "";
  say(at("first-release-words"), `${bin}${when} A number that changed with each event would give single events away.`);
}

// Show which streams there are, for an address that names no stream of this reader.
async function showUnknown() {
  const { streams } = await get("/v1/streams");
  setConnection("live");
  at("unknown").hidden = false;
  document.title = "No such stream · Private counts";
  document.body.classList.remove("loading");
  document.body.classList.add("unknown");
  at("stream-name").textContent = `There is no stream “${page.stream}” here`;
  say(at("stream-about"), "The address may be misspelled, your key may not open this stream, or it has not begun yet. This page looks again every few seconds.");
  const names = JSON.stringify(streams.map(({ stream }) => stream));
  if (at("unknown").dataset.names === names) return; // or a link that has the focus would lose it
  at("unknown").dataset.names = names;
  at("unknown").replaceChildren(
    make("p", {}, streams.length ? "Streams that you can open:" : "No stream has begun yet."),
    make("ul", {}, ...streams.map(({ stream, title }) => make("li", {}, make("a", { href: `/streams/${encodeURIComponent(stream)}` }, title)))),
    make("p", {}, make("a", { href: "/" }, "All streams at a glance")),
  );
}

function addPanels() {
  if (!page.detail.released_until) return;
  for (const Kind of KINDS) {
    if (panels.has(Kind) || !Kind.applies(page)) continue;
    const panel = new Kind(page);
    panels.set(Kind, panel);
    const later = KINDS.slice(KINDS.indexOf(Kind) + 1).find((one) => panels.has(one));
    at("panels").insertBefore(panel.element, later ? panels.get(later).element : null);
    shown.add(panel);
  }
}

// ---- the stream -----------------------------------------------------------------------------------

function listen() {
  unfollow();
  let interrupted = false;
  unfollow = follow(page.stream, `${page.detail.generation ?? 1}:${page.seq}`, {
    onRelease,
    onGeneration: () => { refresh(); },
    onPrivacy: (known) => { page.detail.private = known; showWhetherPrivate(); },
    onState: (state) => {
      setConnection(state === "closed" ? "lost" : state);
      if (state === "live" && interrupted) { // releases may have been missed while the connection was down
        behind = true;
        shown.mark();
      }
      interrupted = state !== "live";
      if (state === "closed") setTimeout(start, 5000);
    },
  });
}

function showWhetherPrivate() {
  const { private: known } = page.detail;
  at("not-private").hidden = known;
  say(at("not-private"), known ? "" : "These values are not private: together, all values shown from this source reveal too much to protect anybody.");
}

// Say where the stream ends, link to the streams before and after it, and say whose history the page shows.
function showSuccession() {
  const { detail, times } = page;
  const on = (instant) => times.onPage(times.moment(seconds(instant)));
  const link = (stream) => make("a", { href: `/streams/${encodeURIComponent(stream)}` }, stream);
  const words = [];
  if (detail.generation) words.push(`This is generation ${detail.generation} of the stream, from `, on(detail.generation_start), ` on. ${detail.history || !detail.changes ? "" : `${detail.changes} `}`);
  for (const part of detail.history?.toReversed() ?? []) words.push("Events of ", times.onPage(times.period(seconds(part.start), seconds(part.end))), " are counted by ", link(part.stream), ". ");
  if (detail.history?.every((part) => part.in_total)) words.push("All counts and charts here include them; alert rules do not. ");
  else if (detail.history) words.push("Another list of keys was counted before: counts and charts of a key that both lists hold include them, the total and alert rules do not. ");
  else if (detail.successor_of) words.push("Events before it began are counted by ", link(detail.successor_of), ". ");
  if (detail.successor) words.push("Events from ", on(detail.ends), " on are counted by ", link(detail.successor), `. ${detail.successor_changes ?? ""}`);
  else if (detail.ends && detail.next_release) words.push("This stream ends at ", on(detail.ends), ".");
  at("succession").hidden = !words.length;
  if (at("succession").textContent === words.map((word) => word.textContent ?? word).join("")) return; // a link may have the focus
  at("succession").replaceChildren(...words);
}

function showStream() {
  const { detail, times } = page;
  const since = times.onPage(times.from(detail.released_until ? page.whole().start : seconds(detail.start)));
  const what = detail.warning ? "From" : "Events of";
  at("stream-about").textContent = `${what} ${detail.source} since ${since}, per ${times.per}`;
  say(at("days-meaning"), times.meaning);
  say(at("meaning"), detail.warning ? `${detail.warning} ${detail.intervals}` : "");
  at("meaning").hidden = !detail.warning;
  say(at("caps"), detail.caps?.sentence ?? "");
  at("caps").hidden = !detail.caps;
  at("meaning-box").hidden = !detail.warning && !detail.caps;
  showWhetherPrivate();
  showEpsilon();
  listAnnotations(at("annotations"), page.annotations, times);
}

async function showPicker() {
  const { streams } = await get("/v1/streams");
  at("stream-select").replaceChildren(...streams.map(({ stream, title }) => new Option(title, stream, false, stream === page.stream)));
  at("picker").hidden = streams.length < 2;
}

// Return a text that differs if a rule changed its state, and not if only what it reads changed.
const statesOf = (alerts) => JSON.stringify(alerts.map(({ value_now: _value, stderr_now: _stderr, against_now: _against, missing_now: _missing, ...state }) => state));

// Read the alert rules' current states. Read the list of changes only if a state differs from before.
async function readAlerts() {
  const base = streamPath(page.stream);
  const { alerts } = await get(`${base}/marks`);
  const changed = statesOf(alerts) !== statesOf(page.alerts);
  page.alerts = alerts;
  if (!changed) return;
  const { transitions, kept } = await get(`${base}/transitions`);
  Object.assign(page, { transitions, transitionsKept: kept });
  shown.mark();
}

// Read the alerts on a timer, because a rule is decided shortly after the release that it is about.
async function refreshAlerts() {
  await readAlerts();
  addPanels();
}

async function refreshPrivacy() {
  privacy = await get(`${streamPath(page.stream)}/privacy`);
  showPrivacy(privacy, page.times);
  showEpsilon();
}

// Show what an epoch costs and, where epochs add up for a user, what all of them have cost so far.
function showEpsilon() {
  const epochs = privacy?.private && privacy.unit !== "event" && !privacy.per && !privacy.own_promise;
  const more = epochs && privacy.source_epsilon !== privacy.epsilon;
  const sum = more ? soFar(privacy.source_epsilon, privacy.source_delta) : "";
  say(at("epsilon"), `${promise(page.detail)} per epoch${epochLength()}${sum}`);
}

// Return how long an epoch is planned to be.
function epochLength() {
  const { epochs, bin_seconds: bin } = page.detail;
  return epochs.length ? ` of ${length(epochs.at(-1).bins * (bin ?? 86400)).replace(/^(?=[a-z])/, "1 ")}` : "";
}

// Show the stream, and try again every few seconds until it is there.
async function start() {
  try {
    await show();
  } catch {
    setConnection("lost");
    if (!page.detail) sayNotShown("The service does not answer. This page tries again every 5 seconds.");
    setTimeout(start, 5000);
  }
}

// Say why no stream is shown yet.
function sayNotShown(words) {
  document.body.classList.add("unanswered");
  say(at("stream-about"), words);
}

async function show() {
  try {
    await refreshDetail();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 404) await showUnknown();
    else sayNotShown(`${sentence(error.message)}. This page tries again every 3 seconds.`);
    setTimeout(start, 3000);
    return;
  }
  document.body.classList.remove("unknown", "loading", "unanswered");
  at("unknown").hidden = true;
  showStream();
  showControls(page);
  addPanels();
  listen();
  await Promise.all([showPicker(), refreshPrivacy()]);
}

// Copy the number in words. Without the right to write the clipboard, the reader may select the text.
async function copyNumber() {
  try {
    await navigator.clipboard.writeText(headlineText(page));
  } catch { // no clipboard: browsers have none without TLS, but on loopback
    say(at("copied"), headlineText(page));
    return;
  }
  say(at("copied"), "Copied");
  setTimeout(() => say(at("copied"), ""), 4000);
}

at("stream-name").textContent = page.stream;
at("copy-number").addEventListener("click", copyNumber);
at("embed-number").addEventListener("click", () => window.location.assign(embedAddress(page)));
at("stream-select").addEventListener("change", (event) => window.location.assign(`/streams/${encodeURIComponent(event.target.value)}`));
listenToControls(page);
at("to-privacy").addEventListener("click", () => { at("privacy").open = true; });
watchTheme(() => panels.forEach((panel) => panel.restyle()));
document.addEventListener("visibilitychange", refresh);
setInterval(() => {
  if (!page.detail || document.hidden) return;
  showState();
  if (behind) refresh();
  else shown.loadRested();
}, REFRESH_MS);
setInterval(() => {
  if (!page.detail || document.hidden) return;
  refreshPrivacy().catch(() => {});
  // No release tells the page that a fault has stopped the stream, or that it goes on.
  behind ||= !["live", "complete"].includes(at("stream-state").dataset.state);
}, PRIVACY_MS);
setInterval(() => { if (page.detail && !document.hidden) refreshAlerts().catch(() => {}); }, ALERTS_MS);
start();
