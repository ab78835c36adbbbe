// The demo page: a year of released rows, replayed with the dashboard's own charts, and the truth beside them.

import { at, bold, make, say } from "../../stream_app/api/dashboard/elements.js";
import { watchTheme } from "../../stream_app/api/dashboard/frame.js";
import { readHeadline, showHeadline } from "../../stream_app/api/dashboard/headline.js";
import { Bins } from "../../stream_app/api/dashboard/panels/bins.js";
import { Cdf } from "../../stream_app/api/dashboard/panels/cdf.js";
import { Quantiles } from "../../stream_app/api/dashboard/panels/quantiles.js";
import { Running } from "../../stream_app/api/dashboard/panels/running.js";
import { showPrivacy } from "../../stream_app/api/dashboard/privacy.js";
import { count } from "../../stream_app/api/dashboard/words.js";
import { get, moveTo } from "./api.js";
import { Player } from "./player.js";
import { Recording, rfc3339 } from "./recording.js";
import { ReplayPage } from "./replay_page.js";
import { Truth } from "./truth.js";

const FIRST_DAY = 14; // the first whole week from Monday to Sunday has ended by then
const UNITS = {
  departure: ["one departure", "Whether any one departure happened."],
  day: ["an aircraft’s day", "All departures of one aircraft on one UTC day, up to 6."],
  year: ["an aircraft’s year", "Everything one aircraft did in the year, up to 600 departures."],
};
const RELEASED = window.RELEASED;

const asked = new URL(window.location.href).searchParams;
const chosen = {
  epsilon: RELEASED?.epsilons.includes(asked.get("total")) ? asked.get("total") : "1",
  unit: asked.get("unit") in UNITS ? asked.get("unit") : "departure",
};
const opened = new Map(); // recordings and truths, by name
let truth, recording, held;
const panels = [];

const speak = (text) => { at("spoken").textContent = text; };
const counts = new ReplayPage("departures", { speak, changed: () => { showRanges(); showNumber(); draw(counts); } });
const delays = new ReplayPage("delays", { speak, changed: () => {} });

// ---- the chosen release ---------------------------------------------------------------------------

async function open(name, make) {
  if (!opened.has(name)) opened.set(name, make());
  return opened.get(name);
}

async function choose() {
  const { epsilon, unit } = chosen;
  const [{ start }, name] = [RELEASED, `${unit}-${epsilon}`];
  const [found, known] = await Promise.all([
    open(name, () => Recording.of(start, RELEASED.deployments[name])),
    open(unit, () => Truth.of(start, RELEASED.truth[unit])),
  ]);
  if (name !== `${chosen.unit}-${chosen.epsilon}`) return; // the reader has chosen another one meanwhile
  [recording, truth] = [found, known];
  held = truth.held(recording.departuresUntil(RELEASED.days).series({ kind: "bin", step: 1, start, end: start + RELEASED.days * 86400 }));
  await player.move(player.day);
  at("main").dataset.shown = name;
  showPrivacy(await get("/v1/streams/departures/privacy"), counts.times);
}

function showChoice() {
  const [name, about] = UNITS[chosen.unit];
  const places = { epsilon: RELEASED.epsilons.indexOf(chosen.epsilon), unit: RELEASED.units.indexOf(chosen.unit) };
  for (const [id, most] of [["epsilon", RELEASED.epsilons.length], ["unit", RELEASED.units.length]]) {
    Object.assign(at(`${id}-slider`), { min: 0, max: most - 1, step: 1, value: String(places[id]) });
  }
  at("epsilon-slider").setAttribute("aria-valuetext", `epsilon ${chosen.epsilon}`);
  at("unit-slider").setAttribute("aria-valuetext", name);
  say(at("epsilon"), `ε = ${chosen.epsilon} for all of this page, ${Number(chosen.epsilon) / 2} for this number`);
  say(at("epsilon-chosen"), chosen.epsilon);
  say(at("unit-chosen"), name);
  const times = Math.exp(Number(chosen.epsilon));
  say(at("epsilon-about"), `Odds change by at most × ${times < 10 ? times.toFixed(2) : times.toFixed(0)}.`);
  say(at("unit-about"), about);
  const url = new URL(window.location.href);
  const put = (key, value, usual) => (value === usual ? url.searchParams.delete(key) : url.searchParams.set(key, value));
  put("total", chosen.epsilon, "1");
  put("unit", chosen.unit, "departure");
  window.history.replaceState(null, "", url);
}

function listen() {
  const change = (key, values) => (event) => {
    chosen[key] = values[Number(event.target.value)];
    showChoice();
    choose();
  };
  at("epsilon-slider").addEventListener("input", change("epsilon", RELEASED.epsilons));
  at("unit-slider").addEventListener("input", change("unit", RELEASED.units));
  at("ranges").addEventListener("change", (event) => counts.choose({ preset: event.target.value, closer: null }));
}

// ---- a moment of the replay -----------------------------------------------------------------------

async function show(day) {
  if (!recording) return;
  moveTo(recording, day);
  await counts.take(await get("/v1/streams/departures"));
  await delays.take(await get("/v1/streams/delays"));
  delays.closer = [RELEASED.start, recording.weekBefore(day)];
  await showNumber();
  if (!panels.length) addPanels();
  await Promise.all([draw(counts), draw(delays)]);
  at("main").dataset.day = String(day);
}

async function draw(page) {
  await Promise.all(panels.filter((one) => one.page === page).map(async (panel) => {
    panel.element.setAttribute("aria-busy", "true");
    await panel.load();
    panel.element.setAttribute("aria-busy", "false");
  }));
}

// Show the number of the chosen range, and the true one below it.
async function showNumber() {
  const found = await readHeadline(counts);
  showHeadline(counts, found, counts.detail.released_until, counts.detail.seq);
  const { start, end } = counts.isPart ? counts.range() : counts.whole();
  const exact = truth.until(end) - truth.until(start);
  const [lower, upper] = found.count.interval;
  const inside = lower <= exact && exact <= upper;
  at("truth").dataset.inside = String(inside);
  at("truth").replaceChildren("True number: ", bold(count(exact)), inside ? ", inside the interval." : ", outside this interval, as about 1 in 20 are.");
  const { warning, meaning } = counts.detail;
  say(at("counted"), warning ? `${meaning} No aircraft has more departures than that, so nothing is left out here. ${count(truth.notCounted)} departures of the year name no aircraft.` : "");
}

function showRanges() {
  for (const input of at("ranges").querySelectorAll("input")) input.checked = !counts.closer && input.value === counts.preset;
  at("closer").hidden = !counts.closer;
}

// ---- the page -------------------------------------------------------------------------------------

// Draw the truth into a chart of a panel.
function beside(band, lines, name = "", seen = () => {}) {
  const draw = band.show.bind(band);
  band.show = (picture, span, domain) => {
    const named = picture.lines.map((line) => ({ ...line, name: line.name || name }));
    const known = lines(picture);
    draw({ ...picture, lines: [...named, ...known] }, span, domain);
    seen(picture.lines, known);
  };
}

// Return what says below a panel how many of its chart's intervals hold the truth. Args: words, what else to say there.
function coverage(panel, words = () => "") {
  const said = make("p", { className: "note coverage" });
  panel.urgent.before(said);
  return (lines, known) => {
    const points = lines.flatMap(({ lower, upper }, which) => lower.map((from, i) => [from, known[which].value[i], upper[i]]));
    const inside = points.filter(([from, exact, to]) => from <= exact && exact <= to).length;
    say(said, `The band holds the truth at ${count(inside)} of the ${count(points.length)} points drawn here (${(100 * inside / Math.max(points.length, 1)).toFixed(1)} %). ${words()}`);
  };
}

// The service's intervals of single hours, over all hours so far.
function ofHours() {
  const { seq } = counts.detail;
  return `The intervals of single hours have held it in ${(100 * held[seq] / seq).toFixed(1)} % of ${count(seq)} hours so far.`;
}

function addPanels() {
  const [bins, running, quantiles, cdf] = [new Bins(counts), new Running(counts), new Quantiles(delays), new Cdf(delays)];
  beside(bins.band, (picture) => truth.ofBins(picture), "released", coverage(bins, ofHours));
  beside(running.band, (picture) => truth.ofRunning(picture), "released",
    coverage(running, () => "Neighbouring running counts share most of their noise, so the truth may stay outside for days."));
  beside(running.strip, (picture) => truth.ofBand(picture, running.band.picture.lines[0].value));
  beside(quantiles.band, (picture) => truth.ofQuantiles(picture, picture.start.map((_, i) => i)), "", coverage(quantiles));
  beside(cdf.band, (picture) => truth.ofDistribution(picture, recording.weekOf(delays.range().end)), "released", coverage(cdf));
  say(cdf.element.querySelector(".about"), `${delays.noun} with a delay of up to each point, since the start of the year. The band holds the whole true curve at once with 95 % probability.`);
  at("panels").append(bins.element, running.element);
  at("distributions").append(quantiles.element, cdf.element);
  panels.push(bins, running, quantiles, cdf);
}

const player = RELEASED && new Player({
  first: FIRST_DAY,
  last: RELEASED.days,
  word: (day) => new Date((RELEASED.start + (day - 0.5) * 86400) * 1000).toLocaleDateString("en-GB", { timeZone: RELEASED.zone, day: "numeric", month: "short", year: "numeric" }).replace("Sept", "Sep"),
  show,
});

async function start() {
  if (!RELEASED) throw new Error("the file released.js is missing. It belongs into the folder of this page");
  if (typeof DecompressionStream !== "function") throw new Error("this browser cannot read compressed data. Chrome and Edge 80, Firefox 113 and Safari 16.4 can, and later ones");
  say(at("stream-name"), "Departures so far");
  say(at("stream-about"), "From New York’s three airports, by their scheduled time, counted every hour.");
  showChoice();
  showRanges();
  listen();
  at("to-privacy").addEventListener("click", () => { at("privacy").open = true; });
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  player.day = still ? RELEASED.days : FIRST_DAY;
  await choose();
  at("main").dataset.ready = "true";
  at("loading").hidden = true;
  watchTheme(() => panels.forEach((panel) => panel.restyle()));
  if (!still && !asked.has("still")) player.play();
}

start().catch((error) => {
  at("main").dataset.ready = "failed";
  say(at("loading"), `The released rows cannot be shown: ${error.message}.`);
});
