// The page: one stream, its number now, two charts and the promise.
//
// Releases arrive by server-sent events. Each only moves the number and marks the charts as stale; the
// charts are read again at most once a second, so thousands of bins at once cost one redraw.

import { ApiError, follow, get, streamPath } from "./api.js";
import { BandChart } from "./charts.js";
import { showPrivacy } from "./privacy.js";
import { chooseStep, presets, snapRange } from "./ranges.js";
import { showTable } from "./tables.js";
import * as words from "./words.js";

const REFRESH_MS = 1000;
const SHARE_OF_SERVER = 4; // a refresh that took t seconds is followed by at least this many t of rest
const SUMMARY_MS = 15000;

const at = (id) => document.getElementById(id);
const address = new URL(window.location.href);

const page = {
  stream: null,
  detail: null, // the stream as /v1/streams/{s} tells it
  preset: address.searchParams.get("range") ?? "all",
  zoom: null, // [start, end] in seconds while looking closer
  view: address.searchParams.get("view") === "first_published" ? "first_published" : "unbiased",
  seq: 0,
  released: null, // the newest release, not drawn yet
  stale: false,
  loading: false,
  again: false,
  restUntil: 0,
  unfollow: () => {},
};

const charts = {
  running: makeChart("running", { title: () => "Running count" }),
  band: makeChart("band", { around: true, title: () => "Band of the running count" }),
  bins: makeChart("bins", { stepped: true, title: () => at("bins-title").textContent }),
};

function makeChart(name, options) {
  return new BandChart(at(`${name}-chart`), {
    ...options,
    sync: "time",
    readout: (point) => showReadout(at(`${name}-readout`), point),
    speak: (text) => { at("spoken").textContent = text; },
    onZoom: (start, end) => zoomTo(start, end),
    onReset: () => zoomTo(null, null),
  });
}

function showReadout(host, point) {
  if (!point) return host.replaceChildren();
  const value = Object.assign(document.createElement("b"), { textContent: point.value });
  return host.replaceChildren(`${point.when}  `, value, `  ${point.interval}`);
}

// ---- the number -----------------------------------------------------------------------------------

function showNow(now, releasedUntil, seq) {
  const { bin_seconds: binSeconds } = page.detail;
  at("value").textContent = now ? words.count(now.value) : "–";
  at("interval").replaceChildren(...(now ? intervalWords(now) : ["Nothing is released yet: the first bin is still open."]));
  at("stderr").textContent = now ? `± ${words.error(now.stderr)}` : "–";
  at("released-until").textContent = releasedUntil ? `${words.instant(words.seconds(releasedUntil), binSeconds)} UTC` : "–";
  const size = document.createElement("small");
  size.textContent = `of ${page.detail.bin}`;
  at("bins").replaceChildren(`${words.count(seq)} `, size);
  at("value").dataset.seq = String(seq);
  document.title = now ? `${words.count(now.value)} · ${page.stream}` : page.stream;
}

function intervalWords({ interval, confidence }) {
  const bold = (text) => Object.assign(document.createElement("b"), { textContent: text });
  const [lower, upper] = words.between(...interval);
  return [`True count between `, bold(lower), ` and `, bold(upper), `, with ${+(confidence * 100).toFixed(4)} % probability`];
}

// A row counts from its epoch's first bin, and per cell. Where that is the stream's running count, the
// number follows every release at once; elsewhere it follows the refreshed summary.
function drawReleased() {
  const text = page.released;
  page.released = null;
  if (text === null || !page.detail) return;
  const row = JSON.parse(text);
  if (row.estimate.length !== 1 || page.detail.epochs[0]?.epoch !== row.epoch) return;
  const now = { value: row.estimate[0], stderr: Math.sqrt(row.variance), interval: row.interval[0], confidence: row.confidence };
  showNow(now, row.end, row.seq);
}

function onRelease(seq, text) {
  page.seq = seq;
  if (page.released === null) requestAnimationFrame(drawReleased);
  page.released = text;
  page.stale = true;
}

// ---- the charts -----------------------------------------------------------------------------------

function currentRange() {
  const { start, released_until: until, bin_seconds: binSeconds } = page.detail;
  const whole = { start: words.seconds(start), end: words.seconds(until) };
  if (page.zoom) return { start: Math.max(page.zoom[0], whole.start), end: Math.min(page.zoom[1], whole.end) };
  const preset = presets(whole, binSeconds).find((one) => one.name === page.preset);
  return preset?.seconds ? { start: Math.max(whole.end - preset.seconds, whole.start), end: whole.end } : whole;
}

async function refreshCharts() {
  page.detail = await get(streamPath(page.stream));
  if (page.detail.seq < page.seq) {
    // The stream began anew: its seq is behind what the browser would resume after.
    page.seq = page.detail.seq;
    listen();
  }
  showNow(page.detail.running, page.detail.released_until, page.detail.seq);
  showRanges();
  if (!page.detail.released_until) return;
  const path = `${streamPath(page.stream)}/series`;
  const { bin_seconds: binSeconds } = page.detail;
  const range = currentRange();
  const step = chooseStep(range, binSeconds, at("bins-chart").clientWidth);
  const points = Math.round(Math.min(Math.max(at("running-chart").clientWidth / 2, 240), 600));
  const aligned = snapRange(range, step * (binSeconds ?? 0), words.seconds(page.detail.start));
  const [running, bins] = await Promise.all([
    get(path, { kind: "running", view: page.view, ...range, points }),
    get(path, { kind: "bin", view: page.view, ...aligned, step }),
  ]);
  at("bins-title").textContent = binSeconds === null ? `Events per ${step === 1 ? "bin" : `${step} bins`}` : `Events per ${words.length(step * binSeconds)}`;
  charts.running.show(running, binSeconds, range);
  charts.band.show(running, binSeconds, range);
  charts.bins.show(bins, step === 1 || binSeconds === null ? binSeconds : Math.min(step * binSeconds, 86400), range);
  at("chart-note").textContent = running.note;
  for (const [name, series] of [["running", running], ["bins", bins]]) {
    showTable(at(`${name}-table`), series, binSeconds, name === "bins");
  }
}

// One refresh at a time, and none while nobody looks; what was asked meanwhile is done next.
async function refresh() {
  if (document.hidden || !page.stream) return;
  if (page.loading) {
    page.again = true;
    return;
  }
  const began = performance.now();
  page.loading = true;
  page.again = page.stale = false;
  try {
    await refreshCharts();
  } catch (error) {
    page.stale = true;
    if (error instanceof ApiError) console.warn(error.message);
    else setConnection("connecting");
  } finally {
    page.loading = false;
    page.restUntil = performance.now() + (performance.now() - began) * (SHARE_OF_SERVER - 1);
  }
  if (page.again) await refresh();
}

function zoomTo(start, end) {
  const { bin_seconds: binSeconds, start: first, released_until: until } = page.detail;
  if (start === null) page.zoom = null;
  else page.zoom = widen(snapTo(start, end), binSeconds, words.seconds(first), words.seconds(until));
  showRanges();
  refresh();
}

// Without a fixed length of bins, the edges that the charts show are the edges that are known.
function snapTo(start, end) {
  const { bin_seconds: binSeconds } = page.detail;
  if (binSeconds !== null) return [Math.floor(start / binSeconds) * binSeconds, Math.ceil(end / binSeconds) * binSeconds];
  const edges = charts.running.series.start.concat(charts.running.series.end.slice(-1));
  const nearest = (wanted) => edges.reduce((best, edge) => (Math.abs(edge - wanted) < Math.abs(best - wanted) ? edge : best));
  return [nearest(start), nearest(end)];
}

function widen([start, end], binSeconds, first, until) {
  const least = 2 * (binSeconds ?? 86400);
  return end - start >= least ? [start, end] : [Math.max(start - least, first), Math.min(start + least, until)];
}

// ---- controls -------------------------------------------------------------------------------------

function showRanges() {
  const { start, released_until: until, bin_seconds: binSeconds } = page.detail;
  const whole = until ? { start: words.seconds(start), end: words.seconds(until) } : null;
  const offered = whole ? presets(whole, binSeconds).map((one) => one.name) : ["all"];
  if (page.zoom) offered.push("closer");
  const chosen = page.zoom ? "closer" : offered.includes(page.preset) ? page.preset : "all";
  const signature = `${offered} ${chosen}`;
  const host = at("ranges");
  if (host.dataset.signature === signature) return;
  host.dataset.signature = signature;
  host.querySelectorAll("label").forEach((label) => label.remove());
  for (const name of offered) host.append(segment("range", name, { all: "All", closer: "Closer" }[name] ?? name, name === chosen));
}

function segment(group, value, text, checked) {
  const label = document.createElement("label");
  const input = Object.assign(document.createElement("input"), { type: "radio", name: group, value, checked });
  const span = Object.assign(document.createElement("span"), { textContent: text });
  label.append(input, span);
  return label;
}

function remember() {
  const url = new URL(window.location.href);
  url.pathname = `/streams/${encodeURIComponent(page.stream)}`;
  url.searchParams.set("range", page.preset);
  url.searchParams.set("view", page.view);
  window.history.replaceState(null, "", url);
}

function setConnection(state) {
  const said = { live: "Live", connecting: "Reconnecting", lost: "Disconnected" };
  at("connection").dataset.state = state;
  if (at("connection").textContent !== said[state]) at("connection").textContent = said[state];
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function themeChanged() {
  at("theme").setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  Object.values(charts).forEach((chart) => chart.restyle());
}

// ---- streams --------------------------------------------------------------------------------------

async function open(stream) {
  Object.assign(page, { stream, zoom: null, seq: 0, released: null });
  page.detail = await get(streamPath(stream));
  const { detail } = page;
  at("stream-name").textContent = stream;
  at("stream-about").textContent = `Events of ${detail.source} since ${words.instant(words.seconds(detail.start), detail.bin_seconds)} UTC, counted per ${detail.bin.replace(/^1 /, "")}`;
  at("not-private").hidden = detail.private;
  at("not-private").textContent = "These values are not private: epsilon is so large that nobody is protected.";
  at("epsilon").textContent = `ε = ${detail.epsilon}`;
  remember();
  page.seq = detail.seq;
  listen();
  await Promise.all([refresh(), refreshPrivacy()]);
}

function listen() {
  const { stream } = page;
  page.unfollow();
  page.unfollow = follow(stream, page.seq, {
    onRelease: (seq, text) => { if (stream === page.stream) onRelease(seq, text); },
    onState: (state) => {
      if (stream !== page.stream) return;
      setConnection(state === "closed" ? "lost" : state);
      if (state === "live") page.stale = true; // what was missed, or a stream that began anew
      if (state === "closed") setTimeout(() => start().catch(() => setConnection("lost")), 5000);
    },
  });
}

async function refreshPrivacy() {
  showPrivacy(await get(`${streamPath(page.stream)}/privacy`));
}

function showPicker(streams) {
  const select = at("stream-select");
  select.replaceChildren(...streams.map((name) => new Option(name, name, false, name === page.stream)));
  at("picker").hidden = streams.length < 2;
}

async function start() {
  const { streams } = await get("/v1/streams");
  const names = streams.map((one) => one.stream);
  if (!names.length) {
    at("stream-about").textContent = "No stream has begun yet. This page looks again every few seconds.";
    setTimeout(() => start().catch(() => setConnection("lost")), 3000);
    return;
  }
  const wanted = page.stream ?? decodeURIComponent(window.location.pathname.split("/")[2] ?? "");
  await open(names.includes(wanted) ? wanted : names[0]);
  showPicker(names);
}

at("stream-select").addEventListener("change", (event) => open(event.target.value));
at("ranges").addEventListener("change", (event) => {
  if (event.target.value !== "closer") Object.assign(page, { preset: event.target.value, zoom: null });
  remember();
  showRanges();
  refresh();
});
at("views").querySelector(`[value=${page.view}]`).checked = true;
at("views").addEventListener("change", (event) => {
  page.view = event.target.value;
  remember();
  refresh();
});
at("theme").addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
  themeChanged();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
document.addEventListener("visibilitychange", refresh);
setInterval(() => { if (page.stale && performance.now() > page.restUntil) refresh(); }, REFRESH_MS);
setInterval(() => { if (page.stream && !document.hidden) refreshPrivacy().catch(() => {}); }, SUMMARY_MS);

themeChanged();
start().catch(() => setConnection("lost"));
