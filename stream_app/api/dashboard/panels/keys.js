// The panel of the keys with the largest counts: one small chart for each key, all with the same scale.

import { bold, make } from "../elements.js";
import { Panel } from "../panel.js";
import { drawSparkline } from "../sparkline.js";
import { grid } from "../tables.js";
import { around, between, count, error } from "../words.js";

const MOST = 12, SLICES = 60;

export class Keys extends Panel {
  constructor(page) {
    super(page, "keys", "By key", "Largest estimates in this range first. All charts have one scale. Choose a key to see the whole page for it.");
    this.small = make("div", { className: "multiples" });
    this.body.append(this.small);
    this.cards = new Map();
    new ResizeObserver(() => this.#draw()).observe(this.small);
  }

  static applies(page) {
    return Boolean(page.detail.axes?.keys);
  }

  async ask(page) {
    return page.ask("keys", { ...page.slices(SLICES), limit: MOST, key: null });
  }

  show({ keys }, page) {
    const wanted = new Set(keys.map((one) => one.key));
    for (const [key, card] of this.cards) if (!wanted.has(key)) this.#drop(key, card);
    keys.forEach((one) => this.#card(one, page));
    const order = keys.map((one) => this.cards.get(one.key).element);
    if (order.some((element, i) => this.small.children[i] !== element)) this.small.replaceChildren(...order);
    this.#draw();
  }

  #card(one, page) {
    const { key, value, interval } = one;
    let card = this.cards.get(key);
    if (!card) {
      const choose = make("button", { type: "button" }, key);
      choose.addEventListener("click", () => page.choose({ key: page.key === key ? null : key }));
      const canvas = make("canvas", { role: "img" });
      const words = make("p", { className: "muted" });
      const element = make("div", { className: "multiple" }, make("div", { className: "multiple-head" }, choose, words), canvas);
      card = { element, choose, canvas, words };
      this.cards.set(key, card);
    }
    const [low, high] = between(...interval);
    card.choose.setAttribute("aria-pressed", String(page.key === key));
    card.words.replaceChildren(bold(count(value)), ` ${around(value, ...interval)}`);
    card.canvas.setAttribute("aria-label", `${key}: ${count(value)} ${page.detail.noun}, between ${low} and ${high}; by time from ${count(Math.min(...one.counts))} to ${count(Math.max(...one.counts))}`);
  }

  #drop(key, card) {
    card.element.remove();
    this.cards.delete(key);
  }

  #draw() {
    const keys = this.answer?.keys ?? [];
    if (!keys.length) return;
    const low = Math.min(0, ...keys.flatMap((one) => one.lower));
    const high = Math.max(1, ...keys.flatMap((one) => one.upper));
    for (const one of keys) {
      const canvas = this.cards.get(one.key)?.canvas;
      if (canvas) drawSparkline(canvas, { value: one.counts, lower: one.lower, upper: one.upper }, { low, high });
    }
  }

  restyle() {
    this.#draw();
  }

  table() {
    const rows = this.answer.keys.map(({ key, value, stderr, interval }) => [key, count(value), ...between(...interval), error(stderr)]);
    return grid(`${rows.length} of ${this.answer.keys_available} keys, over the whole range`, ["Key", "Count", "At least", "At most", "Standard error"], rows);
  }

  csv() {
    const { keys, start, end } = this.answer;
    const time = (seconds) => new Date(seconds * 1000).toISOString();
    const rows = keys.flatMap((one) => start.map((from, i) => [one.key, time(from), time(end[i]), one.counts[i], one.lower[i], one.upper[i], this.answer.private]));
    return this.words(["key", "start", "end", "value", "lower", "upper", "private"], rows);
  }

  canvases() {
    return this.answer.keys.map(({ key }) => this.cards.get(key).canvas);
  }

  labels() {
    return this.answer.keys.map(({ key, value, interval }) => `${key}  ${count(value)} ${around(value, ...interval)}`);
  }
}
