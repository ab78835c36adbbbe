// The panel of events by value and time. A stronger colour means more events.

import { bold, make } from "../elements.js";
import { colour } from "../frame.js";
import { Panel } from "../panel.js";
import { paperOf } from "../sparkline.js";
import { grid } from "../tables.js";
import { utc } from "../times.js";
import { amount, beyond, count, error, valueRange } from "../words.js";

const SLICES = 72, ROWS = 30;
const CLEAR = 2; // standard errors from which a cell is coloured: fainter ones would be specks of noise
const LEFT = 58, RIGHT = 24, TOP = 8, BOTTOM = 26;

export class Heat extends Panel {
  constructor(page) {
    super(page, "heat", "Heat map", `Each cell is a number of ${page.detail.noun}: the stronger the colour, the more. A cell without colour is below ${CLEAR} times its standard error: too few to tell from noise, or none. Point at a cell, or walk with the arrow keys, for its number and error.`);
    this.canvas = make("canvas", { className: "heat", id: page.place("heat-chart"), tabIndex: 0, role: "img", "aria-describedby": this.describedBy });
    this.scale = make("p", { className: "heat-scale" });
    this.body.append(this.canvas, this.scale);
    this.at = null; // [slice, row] of the cell under the pointer
    this.canvas.addEventListener("pointermove", (event) => this.#point(this.#cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => this.#point(null));
    this.canvas.addEventListener("blur", () => this.#point(null));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(this.canvas);
  }

  static applies(page) {
    return Boolean(page.detail.axes?.edges);
  }

  async ask(page) {
    const answer = await page.ask("heat", { ...page.slices(SLICES), rows: ROWS });
    return { ...answer, note: `${answer.note} ${beyond(page.detail.axes.edges)}` };
  }

  show(answer, page) {
    this.heading.textContent = `Heat map of ${page.field} over time`;
    this.most = Math.max(1, ...answer.counts.flat());
    this.canvas.dataset.points = String(answer.counts.length * (answer.edges.length - 1));
    const [least, most] = [answer.edges[0], answer.edges.at(-1)].map(amount);
    this.canvas.setAttribute("aria-label",
      `${this.heading.textContent}: ${answer.counts.length} slices of time, values from ${least} to ${most}, at most ${count(this.most)} ${page.detail.noun} in a cell`);
    this.scale.replaceChildren("0 ", make("span", { className: "ramp", "aria-hidden": "true" }), ` ${count(this.most)} ${page.detail.noun}`);
    this.#draw();
    this.#point(this.at);
  }

  restyle() {
    this.#draw();
  }

  #place() {
    const { counts, edges } = this.answer;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    return { width, height, cell: (width - LEFT - RIGHT) / counts.length, row: (height - TOP - BOTTOM) / (edges.length - 1) };
  }

  #draw() {
    const paper = this.answer?.counts.length && paperOf(this.canvas);
    if (!paper) return;
    const { counts, edges, stderr } = this.answer;
    const { width, height, cell, row } = this.#place();
    paper.fillStyle = colour("--grid"); // so that cells without colour are seen as part of the map
    paper.fillRect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
    paper.fillStyle = colour("--accent");
    let coloured = 0;
    counts.forEach((column, i) => column.forEach((value, j) => {
      if (value < CLEAR * stderr[i][j]) return;
      coloured += 1;
      paper.globalAlpha = Math.max(value, 0) / this.most;
      const [left, right] = [i, i + 1].map((place) => Math.round(LEFT + place * cell));
      const [top, bottom] = [j + 1, j].map((place) => Math.round(height - BOTTOM - place * row));
      paper.fillRect(left, top, right - left, bottom - top);
    }));
    paper.globalAlpha = 1;
    this.canvas.dataset.coloured = String(coloured);
    this.#axes(paper, edges, { width, height, cell, row });
    if (this.at) {
      const [i, j] = this.at;
      Object.assign(paper, { strokeStyle: colour("--ink"), lineWidth: 1.5 });
      paper.strokeRect(LEFT + i * cell, height - BOTTOM - (j + 1) * row, cell, row);
    }
  }

  #axes(paper, edges, { width, height, cell, row }) {
    Object.assign(paper, { font: `12px ${getComputedStyle(document.body).fontFamily}`, fillStyle: colour("--muted"), textAlign: "right", textBaseline: "middle" });
    const rows = Math.max(1, Math.ceil(34 / row));
    edges.forEach((edge, j) => { if (j % rows === 0) paper.fillText(amount(edge), LEFT - 8, height - BOTTOM - j * row); });
    Object.assign(paper, { textAlign: "left", textBaseline: "alphabetic" });
    const names = this.page.times.sliceLabels(this.answer.start);
    const every = Math.max(1, Math.ceil(names.length / Math.max(2, Math.floor(width / 110))));
    names.filter((_, place) => place % every === 0).forEach(([i, words]) => {
      if (LEFT + i * cell < width - 50) paper.fillText(words, LEFT + i * cell, height - 6);
    });
  }

  #cellAt(event) {
    if (!this.answer) return null;
    const { height, cell, row } = this.#place();
    const i = Math.floor((event.offsetX - LEFT) / cell);
    const j = Math.floor((height - BOTTOM - event.offsetY) / row);
    return this.answer.counts[i]?.[j] === undefined ? null : [i, j];
  }

  #words([i, j]) {
    const { start, end, edges, counts, stderr } = this.answer;
    return { when: this.page.times.period(start[i], end[i]), range: valueRange(edges, j), value: count(counts[i][j]), error: error(stderr[i][j]) };
  }

  #point(at) {
    this.at = at && this.answer?.counts[at[0]]?.[at[1]] !== undefined ? at : null;
    if (this.at) {
      const said = this.#words(this.at);
      this.readout.replaceChildren(`${said.when}, ${said.range}  `, bold(said.value), `  standard error ${said.error}`);
    } else if (this.answer?.stderr.length) {
      const all = this.answer.stderr.flat();
      const [least, most] = [Math.min(...all), Math.max(...all)].map(error);
      this.readout.replaceChildren("Standard error of a cell: ", bold(least === most ? least : `${least} to ${most}`));
    }
    this.#draw();
  }

  #key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (!(event.key in moves) || !this.answer?.counts.length) return;
    event.preventDefault();
    const { counts, edges } = this.answer;
    const [i, j] = this.at ?? [counts.length - 1, 0];
    const [right, up] = this.at ? moves[event.key] : [0, 0];
    const clamp = (value, size) => Math.min(Math.max(value, 0), size - 1);
    this.#point([clamp(i + right, counts.length), clamp(j + up, edges.length - 1)]);
    const said = this.#words(this.at);
    this.page.speak(`${said.when}, ${said.range}: ${said.value}, standard error ${said.error}`);
  }

  table() {
    const { start, end, edges, counts, stderr } = this.answer;
    const last = counts.length - 1;
    const slices = Array.from({ length: Math.min(12, counts.length) }, (_, back) => last - back);
    const heads = ["Value", ...slices.map((i) => this.page.times.period(start[i], end[i]))];
    const rows = edges.slice(0, -1).map((_, j) => [valueRange(edges, j), ...slices.map((i) => `${count(counts[i][j])} (${error(stderr[i][j])})`)]);
    return grid(`The newest ${slices.length} of ${counts.length} slices (${this.page.times.scale}), each count with its standard error in brackets`, heads, rows);
  }

  csv() {
    const { start, end, edges, counts, stderr } = this.answer;
    const rows = counts.flatMap((column, i) => column.map((value, j) => [utc(start[i]), utc(end[i]), edges[j], edges[j + 1], value, stderr[i][j], this.answer.private]));
    return this.words(["start", "end", "from", "to", "value", "stderr", "private"], rows);
  }

  canvases() {
    return [this.canvas];
  }

  caption() {
    const [title, range] = super.caption();
    return [title, range, `The strongest colour means ${count(this.most)} ${this.page.detail.noun}. Cells below ${CLEAR} times their standard error have no colour.`, ...this.warnings()];
  }
}
