// The panel of the keys: a row for each, the largest first, with its number, its interval and its course over time.

import { bold, make, say } from "../elements.js";
import { Panel } from "../panel.js";
import { breaksAfter, gapsOf } from "../gaps.js";
import { valueOf } from "../key_choice.js";
import { drawBar, drawInterval, drawSparkline } from "../sparkline.js";
import { grid } from "../tables.js";
import { seconds, utc } from "../times.js";
import { around, error } from "../words.js";

const FIRST = 12, MORE = 24, SLICES = 60, SEARCHED = 1000; // rows at first, rows that a button adds, names of a search
const MOST_IN_FILE = 20_000, MOST_NUMBERS = 100_000, MOST_MEANS = 400; // that the service gives at once

export class Keys extends Panel {
  constructor(page) {
    super(page, "keys", "By key", ["Choose a key to see the whole page for it", make("span", { className: "with-keyboard" }, "; with Ctrl or Shift, add it to the chosen keys"), "."]);
    this.most = FIRST;
    const fields = (page.detail.axes.key_fields ?? []).map(({ field }) => field);
    this.by = make("select", { id: page.place("keys-by") }, ...fields.map((field) => new Option(field, field)), new Option("each combination", "*"));
    this.by.addEventListener("change", () => page.choose({ by: this.by.value }));
    this.grouping = make("label", { className: "picker", hidden: !groups(page) }, make("span", {}, "Group by"), this.by);
    this.search = make("input", { type: "search", id: page.place("keys-search"), placeholder: "Find keys", "aria-label": "Find keys by a part of their name", autocomplete: "off" });
    this.search.addEventListener("input", () => this.#again(FIRST));
    this.tools.append(this.search, this.grouping);
    this.small = make("div", { className: "multiples" });
    this.unsure = make("h3", {}, "May be 0");
    this.more = make("button", { type: "button" }, "");
    this.more.addEventListener("click", () => this.#again(this.most + MORE));
    this.body.append(this.small, make("div", { className: "steps" }, this.more));
    this.cards = new Map();
    new ResizeObserver(() => this.#draw()).observe(this.small);
  }

  static applies(page) {
    return Boolean(page.detail.axes?.keys);
  }

  async ask(page) {
    const by = this.#field(page);
    this.grouping.hidden = !groups(page);
    this.by.value = by ?? "*";
    const key = await this.#found(page, by);
    this.search.hidden = Boolean(by) || page.detail.axes.keys <= FIRST;
    if (key?.length === 0) return { ...this.answer, keys: [], keys_available: 0, by, note: "", urgent: "No key has this in its name." };
    const answer = await page.ask(page.measure.keys, { ...page.slices(SLICES), limit: this.most, key, by });
    const inFile = this.#inFile(answer, page.measure);
    const held = inFile === answer.keys_available ? `all ${inFile.toLocaleString("en")}` : `the first ${inFile.toLocaleString("en")}`;
    const more = answer.keys.length < inFile ? `The CSV file holds ${held} of them.` : "";
    const drawn = answer.partial?.some(Boolean) && !answer.partial.every(Boolean) ? "Small charts leave out slices that are only partial." : "";
    return { ...answer, by, note: [answer.note, drawn, more].filter(Boolean).join(" ") };
  }

  // Return the names that hold the text of the search; null without a text.
  async #found(page, by) {
    const contains = by ? "" : this.search.value.trim();
    if (!contains) return null;
    return (await page.ask("keys/list", { key: null, contains, limit: SEARCHED })).keys;
  }

  // Show another number of rows.
  #again(most) {
    this.most = most;
    this.load().catch(() => this.sayUnanswered());
  }

  // Return the key field by which to group: the reader's choice, at first the first field; null: show each key.
  #field(page) {
    const fields = page.detail.axes.key_fields?.map(({ field }) => field) ?? [];
    if (!fields.length || page.by === "*" || page.measure.name !== "count") return null;
    return fields.includes(page.by) ? page.by : fields[0];
  }

  // Return the name of a row: its key, or its value of the field by which the rows are grouped.
  #name({ key }) {
    const { by } = this.answer;
    return by ? valueOf(this.page.detail.axes, key, by) : key;
  }

  show({ keys, by }, page) {
    this.heading.textContent = page.measure.name === "count" ? `By ${by ?? page.detail.axes.key_field ?? "key"}` : `${page.measure.title} by key`;
    say(this.readout, page.times.onPage(page.times.period(page.range().start, page.range().end)));
    const wanted = new Set(keys.map((one) => one.key));
    for (const [key, card] of this.cards) if (!wanted.has(key)) this.#drop(key, card);
    keys.forEach((one) => this.#card(one, page));
    const [sure, unsure] = [keys.filter((one) => !mayBeNone(one)), keys.filter(mayBeNone)];
    say(this.unsure, unsure.some(({ value }) => value < 0) ? "May be 0; noise can make it negative" : "May be 0");
    const elements = (some) => some.map((one) => this.cards.get(one.key).element);
    const order = [...elements(sure), ...(sure.length && unsure.length ? [this.unsure] : []), ...elements(unsure)];
    const left = this.answer.keys_available - keys.length;
    this.more.hidden = left <= 0;
    say(this.more, `Show ${left > MORE ? `${MORE} of ` : ""}${left.toLocaleString("en")} more`);
    if (order.some((element, i) => this.small.children[i] !== element)) this.small.replaceChildren(...order);
    this.#draw();
  }

  #card(one, page) {
    const { key, value, interval } = one;
    let card = this.cards.get(key);
    if (!card) {
      const choose = make("button", { type: "button", title: this.#name(one) }, this.#name(one));
      choose.addEventListener("click", (event) => page.choose({ keys: chosenBy(event, page.keys, key) }));
      const canvas = make("canvas", { role: "img", "aria-describedby": this.describedBy });
      const bar = make("canvas", { className: "bar-of-key", "aria-hidden": "true" });
      const words = make("p", { className: "multiple-number" });
      const name = make("div", { className: "key-of" }, choose, ...(one.found ? [make("small", {}, `shown since ${found(one, page)}`)] : []));
      const element = make("div", { className: "multiple" }, name, canvas, words, bar);
      card = { element, choose, bar, canvas, words };
      this.cards.set(key, card);
    }
    const { measure } = this;
    const [low, high] = measure.numbers.between(...interval);
    const said = numberOf(one, measure);
    card.choose.setAttribute("aria-pressed", String(page.keys.includes(key)));
    card.words.replaceChildren(bold(said), make("small", {}, one.counts ? ` ${around(value, ...interval)}` : ` ${low} to ${high}`));
    const what = measure.name === "count" ? page.detail.noun : measure.title;
    const of = (count) => measure.numbers.value(count, interval);
    const drawn = one.counts && this.#whole(one.counts);
    const time = drawn ? `; by time from ${of(Math.min(...drawn))} to ${of(Math.max(...drawn))}` : "";
    card.canvas.setAttribute("aria-label", `${this.#name(one)}: ${said} ${what}, between ${low} and ${high}${time}`);
  }

  #drop(key, card) {
    card.element.remove();
    this.cards.delete(key);
  }

  #draw() {
    const keys = this.answer?.keys ?? [];
    if (!keys.length) return;
    this.small.classList.toggle("of-means", !keys[0].counts);
    if (!keys[0].counts) return this.#drawMeans(keys);
    const breaks = breaksAfter(this.#whole(this.answer.end), gapsOf(this.page.detail));
    const low = Math.min(0, ...keys.flatMap((one) => this.#whole(one.lower)));
    const high = Math.max(1, ...keys.flatMap((one) => this.#whole(one.upper)));
    const ends = { low: Math.min(0, ...keys.map(({ interval }) => interval[0])), high: Math.max(1, ...keys.map(({ interval }) => interval[1])) };
    for (const one of keys) {
      const { canvas, bar } = this.cards.get(one.key) ?? {};
      if (bar) drawBar(bar, one, ends);
      const [value, lower, upper] = [one.counts, one.lower, one.upper].map((column) => this.#whole(column));
      if (canvas) drawSparkline(canvas, { value, lower, upper }, breaks, { low, high });
    }
    return undefined;
  }

  // Return a column without the partial slices, whose counts would look like a fall; all of it if every slice is partial.
  #whole(column) {
    const { partial } = this.answer;
    return partial.every(Boolean) ? column : column.filter((_, i) => !partial[i]);
  }

  // Return how many keys a file holds.
  #inFile({ keys_available: available }, measure) {
    return Math.min(available, measure.enough ? MOST_MEANS : MOST_IN_FILE);
  }

  // Draw the mean of each key and its interval along one horizontal axis.
  #drawMeans(keys) {
    const { enough } = this.measure;
    const known = keys.filter(enough);
    const scale = { low: Math.min(...known.map(({ interval }) => interval[0])), high: Math.max(...known.map(({ interval }) => interval[1])) };
    for (const one of keys) {
      const canvas = this.cards.get(one.key)?.canvas;
      if (canvas) drawInterval(canvas, enough(one) ? one : null, scale);
    }
  }

  restyle() {
    this.#draw();
  }

  table() {
    const { measure } = this;
    const { numbers } = measure;
    const finds = this.answer.keys.some((one) => one.found);
    const rows = this.answer.keys.map((one) => [this.#name(one), numberOf(one, measure), ...numbers.between(...one.interval), ...(one.counts ? [error(one.stderr)] : []), ...(finds ? [found(one, this.page)] : [])]);
    const heads = [this.answer.by ?? "Key", measure.counted, "At least", "At most", ...(measure.enough ? [] : ["Standard error"]), ...(finds ? ["Found"] : [])];
    return grid(`${rows.length} of ${this.answer.keys_available} ${this.answer.by ? "values" : "keys"}, over the whole range`, heads, rows);
  }

  // Return the rows of a file, of all keys: each key in each slice. Of many keys there are fewer slices.
  async csv() {
    const { page, measure, answer: { by } } = this;
    const found = this.search.value.trim(); // a file holds all keys, also while the panel shows those of a search
    const all = found ? await page.ask(measure.keys, { ...page.slices(SLICES), limit: 1, key: null, by }) : this.answer;
    const available = all.keys_available;
    const limit = this.#inFile(all, measure);
    const slices = page.slices(Math.min(SLICES, Math.floor(MOST_NUMBERS / limit) - 2)); // two may be partial
    const answer = found || limit > this.answer.keys.length ? await page.ask(measure.keys, { ...slices, limit, key: null, by }) : this.answer;
    const { keys, start, end, partial, private: known } = answer;
    const heads = ["key", "start", "end", "value", "lower", "upper", ...(measure.enough ? [] : ["partial"]), "private"];
    const rows = keys.flatMap(({ key, value, interval, counts, lower, upper }) => (measure.enough
      ? [[key, start, end, value, ...interval, known]]
      : start.map((from, i) => [key, utc(from), utc(end[i]), counts[i], lower[i], upper[i], partial[i], known])));
    if (keys.length === available) return this.words(heads, rows);
    return this.words([...heads, "keys_left_out"], rows.map((row) => [...row, available - keys.length]));
  }

  canvases() {
    return this.answer.keys.map(({ key }) => this.cards.get(key).canvas);
  }

  labels() {
    return this.answer.keys.map((one) => `${this.#name(one)}  ${numberOf(one, this.measure)} ${one.counts ? around(one.value, ...one.interval) : ""}`);
  }
}

// Return when a key was found: the end of the bin that first showed it.
const found = (one, page) => (one.found ? page.times.moment(seconds(one.found)) : "listed");

// Return whether a key may have no event: its interval holds 0.
const mayBeNone = ({ counts, interval }) => Boolean(counts) && interval[0] <= 0;

// Return whether the keys can be grouped by their fields; sums are by key only.
const groups = (page) => Boolean(page.detail.axes.key_fields) && page.measure.name === "count";

// Return the text of a key's number.
const numberOf = (one, { enough, numbers }) => (enough?.(one) === false ? numbers.none : numbers.value(one.value, one.interval));

// Return the chosen keys after a click on a key: this key alone, or the others with it or without it.
function chosenBy(event, chosen, key) {
  const others = chosen.filter((one) => one !== key);
  if (event.ctrlKey || event.metaKey || event.shiftKey) return others.length < chosen.length ? others : [...chosen, key];
  return chosen.length === 1 && !others.length ? [] : [key];
}
