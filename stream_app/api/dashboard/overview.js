// The page of all streams. One connection receives the changes of all streams. Every event has the whole summary
// of a stream, so the page is up to date again after each reconnection.

import { get } from "./api.js";
import { at, bold, explained, inBetween, make, say, showNumber } from "./elements.js";
import { isConnected, setConnection, watchTheme } from "./frame.js";
import { breaksAfter, gapsOf } from "./gaps.js";
import { drawSparkline } from "./sparkline.js";
import { stateOf, Watched } from "./stream_state.js";
import { seconds, timesOf } from "./times.js";
import * as words from "./words.js";
import { chosenZone } from "./zone.js";

const cards = new Map(); // by stream
const preparing = new Map(); // cards of configured streams that no worker has opened yet, by stream
let ahead = 0; // seconds by which the service's clock is ahead of the browser's clock

const now = () => Date.now() / 1000 + ahead;

class StreamCard {
  constructor(stream) {
    const id = `stream-${stream}`;
    this.link = make("a", { id, href: `/streams/${encodeURIComponent(stream)}` }, stream);
    this.state = make("span", { className: "chip" });
    this.about = make("p", {});
    this.open = make("p", { className: "loud" }, "Not private.");
    this.canvas = make("canvas", { className: "sparkline", role: "img" });
    this.what = make("p", { className: "muted what" });
    this.value = make("p", { className: "number", dataset: { testid: "value" } });
    this.interval = make("p", { className: "interval" });
    this.last = make("p", { className: "muted" });
    this.next = make("p", { className: "muted next" });
    this.meaning = make("p", {});
    this.help = explained("About this number", this.about, this.meaning);
    this.element = make("article", { className: "card stream", "aria-labelledby": id },
      make("div", { className: "card-head" }, make("h2", {}, this.link), this.state),
      this.open, make("div", { className: "titled" }, this.what, this.help.button), this.help.box,
      this.value, this.interval, this.canvas, make("div", { className: "card-foot" }, this.last, this.next));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  show(told) {
    this.watched ??= new Watched(now());
    if (this.told && told.seq > this.told.seq) this.watched.moved = now();
    this.told = told;
    say(this.link, told.title);
    this.times = timesOf(told, chosenZone() ?? told.display_timezone);
    const { sparkline, sum, this_epoch: epoch } = told;
    const headline = sum ?? epoch ?? told.running;
    const spent = words.soFar(told.epsilon_so_far, told.delta_so_far);
    this.about.textContent = `Counted per ${this.times.per}, ${words.promise(told).replaceAll(" ", "\u00a0")} per epoch${spent}.`;
    say(this.meaning, sum ? `The ${sum.counted}.` : told.counted === "events" ? "" : told.meaning);
    this.open.hidden = told.private;
    this.help.check();
    const numbers = sum ? words.decimals(words.places(sum.amounts.unit)) : words.COUNTS;
    say(this.what, headline ? this.counted() : "");
    showNumber(this.value, headline ? numbers.value(headline.value, headline.interval) : "–");
    this.value.dataset.seq = String(told.seq);
    this.interval.replaceChildren(...(headline ? sure(headline, numbers) : ["Nothing is released yet."]));
    this.canvas.hidden = !sparkline;
    if (sparkline) this.showLast(sparkline, numbers);
    this.showState();
    this.tick();
  }

  // Return what the number is of, and since when: retention, or another list of keys, may have moved its beginning.
  counted() {
    const { counted, sum, start, this_epoch: epoch } = this.told;
    const from = (instant) => this.times.from(seconds(instant)); // the card names the zone below
    if (epoch && !sum) return words.sentence(epoch.counted.replace(epoch.start, from(epoch.start)));
    const what = sum ? `Total ${sum.amounts.field}` : counted === "events" ? "Events" : "Counted events";
    return `${what} since ${from(start)}`;
  }

  showLast({ value, lower, upper, end }, numbers) {
    const last = value.length - 1;
    const [low, high] = numbers.between(lower[last], upper[last]);
    const of = (number) => numbers.value(number, [lower[last], upper[last]]);
    const { times } = this;
    this.last.replaceChildren(`Last ${times.bin} `, bold(of(value[last])), ` (${low} to ${high})`);
    this.canvas.setAttribute("aria-label",
      `The last ${value.length} bins until ${times.onPage(times.until(end[last]))}: from `
      + `${of(Math.min(...value))} to ${of(Math.max(...value))} per bin; `
      + `the last ${of(value[last])}, between ${low} and ${high}`);
    this.draw();
  }

  showState() {
    const { firing, pending } = this.told;
    const [state, text, rules] = firing.length ? ["firing", `${firing.length} firing`, firing]
      : pending.length ? ["pending", `${pending.length} pending`, pending] : ["quiet", "", []];
    this.state.dataset.state = state;
    this.state.title = rules.join(", ");
    say(this.state, text);
  }

  // Update the texts that depend on the current time. This is called every second.
  tick() {
    const { next_release: next, released_until: until } = this.told;
    const { state, text } = stateOf(this.told, now(), this.watched, isConnected());
    this.element.dataset.state = state;
    const upto = until ? `Until ${this.times.onPage(this.times.until(seconds(until)))}` : "";
    if (!next) return say(this.next, [upto, text].filter(Boolean).join(" · "));
    if (text.startsWith("Catching up")) return say(this.next, `${upto} · ${text}`);
    const left = seconds(next) - now();
    if (left < 0 && !isConnected()) return say(this.next, upto);
    const said = left > 0 ? `in ${words.wait(left)}` : left > -60 ? "any moment" : left > -172800 ? `overdue by ${words.wait(-left)}` : "overdue";
    return say(this.next, upto ? `${upto}, next ${said}` : `First release ${said}`);
  }

  draw() {
    if (!this.told?.sparkline) return;
    drawSparkline(this.canvas, this.told.sparkline, breaksAfter(this.told.sparkline.end, gapsOf(this.told)));
  }
}

const sure = ({ interval, confidence }, numbers) => [...inBetween(numbers.between(...interval)), " ", make("span", {}, `(${words.percent(confidence)})`)];

function show(told) {
  let card = cards.get(told.stream);
  if (!card) {
    preparing.get(told.stream)?.remove();
    preparing.delete(told.stream);
    card = new StreamCard(told.stream);
    cards.set(told.stream, card);
    const names = [...cards.keys()].sort();
    const after = cards.get(names[names.indexOf(told.stream) + 1]);
    at("streams").insertBefore(card.element, after?.element ?? preparing.values().next().value ?? null);
  }
  card.show(told);
  showSummary();
}

// Show a configured stream without a number, after the streams that have one.
function showPreparing({ stream, title }) {
  const id = `stream-${stream}`;
  const chip = make("span", { className: "chip", dataset: { state: "quiet" } }, "Not open yet");
  const card = make("article", { className: "card stream", "aria-labelledby": id },
    make("div", { className: "card-head" }, make("h2", { id }, title), chip),
    make("p", { className: "muted" }, "Its worker prepares it or is down; the worker's log says which."));
  preparing.set(stream, card);
  at("streams").append(card);
}

function showSummary() {
  const told = [...cards.values()].map((card) => card.told);
  const firing = told.flatMap((one) => one.firing).length;
  const alerts = firing ? `${firing} ${firing === 1 ? "alert fires" : "alerts fire"}.` : "No alert fires.";
  document.body.classList.remove("loading");
  say(at("summary"), told.length
    ? `${told.length} ${told.length === 1 ? "stream" : "streams"}. ${alerts}`
    : "No stream has begun yet. This page shows the first one as soon as a worker begins to count.");
}

function follow() {
  const events = new EventSource("/v1/overview/events");
  events.onopen = () => setConnection("live");
  events.onerror = () => {
    const refused = events.readyState === EventSource.CLOSED; // the browser does not connect again
    setConnection(refused ? "lost" : "connecting");
    if (refused) setTimeout(follow, 5000);
  };
  events.addEventListener("stream", (event) => show(JSON.parse(event.data)));
  events.addEventListener("gone", (event) => {
    cards.get(event.data)?.element.remove();
    cards.delete(event.data);
    showSummary();
  });
}

// Link the boards that the reader may open.
async function showBoards() {
  const { boards } = await get("/v1/boards");
  at("boards").prepend(...boards.map(({ board, title }) => make("a", { href: `/boards/${encodeURIComponent(board)}` }, title)));
}

async function start() {
  const said = await get("/v1/overview");
  ahead = seconds(said.now) - Date.now() / 1000;
  said.streams.forEach(show);
  said.preparing.forEach(showPreparing);
  showSummary();
  follow();
  await showBoards();
}

watchTheme(() => cards.forEach((card) => card.draw()));
setInterval(() => { if (!document.hidden) cards.forEach((card) => card.tick()); }, 1000);
start().catch((error) => {
  setConnection("lost");
  document.body.classList.remove("loading");
  say(at("summary"), `${words.failure(error)} This page tries again every 5 seconds.`);
  setTimeout(() => window.location.reload(), 5000);
});
