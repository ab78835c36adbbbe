// The large number at the top of a stream's page, with its interval: of the chosen range, keys and view. A stream with
// a sum has three numbers side by side: its total, its mean and its events. The reader chooses the one that the charts
// show.

import { hasOtherBins } from "./earlier_bins.js";
import { at, bold, inBetween, make, say, showNumber } from "./elements.js";
import { gapsInWords } from "./gaps.js";
import { seconds } from "./times.js";
import * as words from "./words.js";

// Return the numbers of all measures for the chosen view and keys, by the names of the measures: {value, stderr,
// interval, confidence}. A number is null before the first release.
export async function readHeadline(page) {
  const found = await Promise.all(page.measures.map((measure) => read(page, measure)));
  return Object.fromEntries(page.measures.map(({ name }, i) => [name, found[i]]));
}

async function read(page, measure) {
  if (!page.detail.running) return null;
  const part = page.isPart ? page.range() : null;
  if (measure.name !== "count") return page.ask(measure.single, part ?? {});
  const [whole, inRange] = await Promise.all([readWhole(page), part && readRange(page, part)]);
  return { ...inRange ?? await readEpoch(page, whole), whole };
}

// Return the number of events in a range, in the chosen view. Bins of several lengths have the estimate only.
async function readRange(page, { start, end }) {
  if (page.view === "unbiased" || hasOtherBins(page.detail)) return page.ask("count", { start, end });
  return only(await page.ask("series", { kind: "bin", step: page.bins.of(end) - page.bins.of(start), view: page.view, start, end }));
}

// Return the number of all events so far: the last point of the panel of the running count.
async function readWhole(page) {
  if (page.view === "unbiased" && !page.keys.length) return page.detail.running;
  const { start, end } = page.whole();
  const series = page.ask("series", { kind: "running", view: page.view, start: page.before(end, 1), end });
  if (page.detail.history?.every((one) => one.in_total) ?? true) return only(await series);
  const [found, { unmeasured }] = await Promise.all([series, page.ask("count", { start, end })]); // not every list has the keys
  return { ...only(found), unmeasured };
}

// Return the number of users first seen in the last epoch, for the chosen keys and view; otherwise what is given.
async function readEpoch(page, whole) {
  const { this_epoch: epoch } = page.detail;
  if (!epoch || releasedEpochs(page) < 2) return whole;
  if (page.view !== "consistent" && !page.keys.length) return epoch;
  const [start, end] = [seconds(epoch.start), seconds(epoch.end)];
  const view = page.view === "consistent" ? "consistent" : "unbiased";
  return only(await page.ask("series", { kind: "bin", step: page.bins.of(end) - page.bins.of(start), view, start, end }));
}

const only = ({ value, stderr, lower, upper, confidence }) => ({ value: value[0], stderr: stderr[0], interval: [lower[0], upper[0]], confidence });
// Return how many bins, or epochs, the streams before this one have released, whose history goes on here.
const released = (page, what) => (page.detail.history ?? []).filter((one) => one.in_total && one.bin === page.detail.bin).reduce((sum, one) => sum + one[what], 0);
const releasedEpochs = (page) => released(page, "epochs_released") + page.detail.epochs.filter((one) => one.bins_released).length;

// Args: found, as ``readHeadline`` returns it; until, the end of the last released bin; seq, of that release.
export function showHeadline(page, found, until, seq) {
  const { times, measure } = page;
  const now = found[measure.name];
  const shown = now ? value(measure, now) : null;
  showNumber(at("value"), shown ?? "–");
  at("value").dataset.seq = String(seq);
  at("interval").replaceChildren(...(now ? intervalWords(page, now) : ["Nothing is released yet."]));
  at("released-until").textContent = until ? times.onPage(times.until(seconds(until))) : "–";
  say(at("bins-released"), `${words.count(seq + released(page, "bins_released"))} × ${times.oneBin}`);
  showRange(page, now);
  document.title = shown ? `${shown} · ${page.fullTitle}` : page.fullTitle;
  showOverEpochs(page, now);
  showUnmeasured(page, now?.whole?.unmeasured ?? page.detail.unmeasured ?? []);
  showMeasures(page, found);
}

// Over the number of a part of the stream say which part; below it, the number of the whole stream.
function showRange(page, now) {
  const part = now && page.isPart;
  at("value-range").hidden = !part;
  at("all-time").hidden = !(part && now.whole);
  if (!part) return;
  const { start, end } = page.range();
  say(at("value-range"), page.times.onPage(page.times.period(start, end)));
  if (now.whole) at("all-time").replaceChildren(`Since ${page.times.onPage(page.times.from(page.whole().start))}: `, bold(words.count(now.whole.value)), ` ${words.around(now.whole.value, ...now.whole.interval)}`);
}

// Return the number as a text to copy: what, when, the number, its interval and the address.
export function headlineText(page) {
  const when = at("value-range").hidden ? `until ${at("released-until").textContent}` : at("value-range").textContent;
  return `${page.fullTitle}, ${when}: ${at("value").textContent}. ${at("interval").textContent}. ${window.location.href}`;
}

// Return the address of a board that has this number, with the configuration by which another page may embed it.
export function embedAddress(page) {
  const { start, end } = page.range();
  const panel = { name: "number", show: "number", streams: [page.stream], measure: page.measure.name, range_seconds: page.isPart ? end - start : null };
  return `/boards#${new URLSearchParams({ board: JSON.stringify({ title: page.title, panels: [panel] }) })}`;
}

// Say how many users the stream has counted in all epochs together, once there are several.
function showOverEpochs(page, now) {
  const several = page.detail.this_epoch && !page.isPart ? releasedEpochs(page) : 0;
  at("over-epochs").hidden = several < 2;
  if (several < 2) return;
  const { value: sum, interval } = now.whole;
  const [lower, upper] = words.between(...interval);
  at("over-epochs").replaceChildren("Sum over all ", `${words.count(several)} epochs: `, bold(words.count(sum)),
    ` (${lower} to ${upper}). The sum counts a user once in every epoch.`);
}

// Say which times no epoch measured, or had no such key: no number on the page holds their events.
function showUnmeasured({ times }, gaps) {
  at("unmeasured").hidden = !gaps.length;
  say(at("unmeasured"), gapsInWords(gaps, times));
}

// Return the text of a number; null if the measure says that there are too few events for it.
const value = (measure, one) => (measure.enough?.(one) === false ? null : measure.numbers.value(one.value, one.interval));

function intervalWords(page, now) {
  const { measure } = page;
  const subject = measure.name === "count" ? `True number of ${page.isPart && now.counted ? now.counted : countedWords(page)}` : `True ${now.counted}`;
  const few = value(measure, now) === null ? ["Too few events for a mean. "] : [];
  const group = page.group(5);
  const whose = !group ? "" : group.includes(": ") ? ` (${group})` : ` for ${group}`; // values of fields follow their names
  return [...few, `${subject}${whose}: `, ...inBetween(measure.numbers.between(...now.interval)), " ", make("span", {}, `(${words.percent(now.confidence)})`)];
}

// Return what the number counts. A stream that counts users shows those of the last epoch.
function countedWords({ detail: { counted, this_epoch: epoch }, times, isPart }) {
  return epoch && !isPart ? epoch.counted.replace(epoch.start, times.onPage(times.from(seconds(epoch.start)))) : counted;
}

function showMeasures(page, found) {
  const host = at("measures");
  host.hidden = page.measures.length === 1;
  if (host.hidden) return;
  if (host.children.length === 1) host.append(...page.measures.map(tile));
  for (const measure of page.measures) {
    const now = found[measure.name];
    const [number, interval] = host.querySelectorAll(`[data-measure=${measure.name}] :is(b, small)`);
    say(number, now ? value(measure, now) ?? "too few events" : "–");
    say(interval, now ? measure.numbers.between(...now.interval).join(" to ") : "");
  }
  host.querySelector(`[value=${page.measure.name}]`).checked = true;
}

function tile({ name, title }) {
  return make("label", { dataset: { measure: name } },
    make("input", { type: "radio", name: "measure", value: name }),
    make("span", {}, title, make("b", {}), make("small", {})));
}
