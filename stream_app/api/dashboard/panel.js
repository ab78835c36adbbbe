// A panel is a card with a chart, a text about the point under the pointer, a table of the chart's numbers and
// buttons that save files.

import { BandChart } from "./charts.js";
import { saveCsv, saveJson, savePng } from "./download.js";
import { bold, explained, make, say } from "./elements.js";
import { gapsOf } from "./gaps.js";
import { pictureTable } from "./tables.js";
import { utc } from "./times.js";
import { costs } from "./words.js";

// A sentence of many answers that the page says once, below all charts; and one that stands with the numbers it is about.
const SAID_ONCE = "Each interval is for one point. Of many 95 % intervals, about 1 in 20 misses the true number.";
const SHORTENED = /[\d,]+ points are shortened to [^.]*\.\s*/;

export class Panel {
  // A subclass defines ask(page), which requests the answer, and show(answer, page), which draws it. It may define
  // static applies(page), which says whether the stream has this panel. A subclass that draws anything other than
  // one BandChart also defines table(), csv() and canvases().
  constructor(page, name, title, about = "") {
    this.page = page;
    this.name = name = page.place(name);
    this.heading = make("h2", { id: `${name}-title` }, title);
    this.readout = make("p", { className: "readout", id: `${name}-readout` });
    this.tools = make("div", { className: "tools" });
    this.body = make("div", { className: "panel-body" });
    this.note = make("p", { className: "note" });
    this.urgent = make("p", { className: "urgent", role: "status" }); // what a reader must know at once
    this.numbers = make("div", { tabIndex: 0, role: "region", id: `${name}-table`, "aria-label": `Numbers: ${page.heads(title)}` });
    this.details = make("details", { className: "numbers" }, make("summary", {}, "Numbers"), this.shortened = make("p", { className: "muted" }), this.numbers);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.saving = make("div", { className: "saving", role: "group", "aria-label": `Save: ${title}` },
      this.#saver("CSV", async () => saveCsv(this.file(), ...await this.csv()), "All numbers of this panel, with times in UTC"),
      this.#saver("JSON", () => saveJson(this.file(), this.answer)),
      this.#saver("PNG", () => savePng(this.file(), this.caption(), this.canvases(), this.labels())));
    const { warning } = page.detail;
    // The page says once which events count. A chart only has these words as its description, for screen readers.
    this.meaning = make("p", { hidden: true, id: `${name}-meaning` }, warning);
    this.help = explained(`About: ${title}`, ...(about ? [make("p", { className: "about" }, ...[about].flat())] : []), this.note);
    this.element = make("section", { className: "card panel", id: name, "aria-labelledby": `${name}-title` },
      make("div", { className: "card-head" }, make("div", { className: "titled" }, this.heading, this.help.button), this.tools),
      this.help.box,
      ...(warning ? [this.meaning] : []),
      this.readout, this.body, this.urgent,
      make("div", { className: "card-end" }, this.details, this.saving));
    this.answer = null;
    this.measure = null; // what the answer is about
    this.asked = "";
    this.restUntil = 0;
  }

  static applies() {
    return true;
  }

  chart(options = {}, own = null) {
    const name = own === null ? this.name : this.page.place(own);
    const host = make("div", { className: "chart", id: `${name}-chart`, tabIndex: 0, role: "img", "aria-describedby": this.describedBy });
    host.classList.toggle("strip", Boolean(options.strip));
    this.body.append(host);
    const page = this.page;
    return new BandChart(host, {
      times: () => page.times,
      title: () => page.heads(this.heading.textContent),
      readout: (point) => showPoint(this.readout, point),
      speak: (text) => page.speak(text),
      ...(options.value ? {} : { gaps: () => gapsOf(page.detail), annotations: () => page.annotations, sync: "time", onZoom: (start, end) => page.zoom(start, end), onReset: () => page.zoom(null, null) }),
      ...options,
    });
  }

  // Return the ids of the texts that describe a chart of this panel to screen readers.
  get describedBy() {
    return this.page.detail.warning ? `${this.name}-meaning chart-keys` : "chart-keys";
  }

  // Request the answer and draw it. If the service refuses the request, show its message instead of the chart.
  async load() {
    try {
      const { choice, measure } = this.page;
      const answer = await this.ask(this.page);
      if (choice !== this.page.choice) return; // the reader chose something else meanwhile, so the panel is loaded again
      Object.assign(this, { answer, measure });
      this.element.classList.remove("failed");
      this.show(this.answer, this.page);
      const note = this.answer.note ?? "";
      say(this.note, note.replace(SAID_ONCE, "").replace(SHORTENED, "").trim());
      say(this.urgent, answer.urgent ?? "");
      this.help.check();
      say(this.shortened, note.match(SHORTENED)?.[0] ?? "");
      if (!this.page.detail.shape) say(this.meaning, answer.meaning ?? this.page.detail.warning);
      this.#nameParts();
      this.element.dataset.seq = String(this.answer.seq);
      this.fillTable();
    } catch (error) {
      if (error.name !== "ApiError" || error.passing) throw error;
      this.element.classList.add("failed");
      say(this.urgent, `No chart: ${error.message}.`);
    }
  }

  // Say that there is no chart yet, because the service did not answer.
  sayUnanswered() {
    if (!this.answer) say(this.urgent, "The service is busy or does not answer. This chart is asked for again.");
  }

  restyle() {
    this.band?.restyle();
  }

  fillTable() {
    if (this.details.open && this.answer) this.numbers.replaceChildren(this.table());
  }

  table() {
    return pictureTable(this.band);
  }

  canvases() {
    return [this.band.canvas];
  }

  labels() {
    return [];
  }

  csv() {
    const { lines, start, end, stderr, nodes } = this.band.picture;
    const named = (name, head) => (name ? `${head} (${name})` : head);
    const heads = [...(start ? ["start"] : []), "end", ...lines.flatMap(({ name }) => ["value", "lower", "upper"].map((head) => named(name, head)))];
    const rows = end.map((to, i) => [...(start ? [utc(start[i])] : []), utc(to), ...lines.flatMap((line) => [line.value[i], line.lower[i], line.upper[i]])]);
    if (stderr) heads.push("stderr");
    if (nodes) heads.push("nodes");
    rows.forEach((row, i) => row.push(...(stderr ? [stderr[i]] : []), ...(nodes ? [nodes[i]] : [])));
    return this.words([...heads, "private"], rows.map((row) => [...row, this.answer.private]));
  }

  caption() {
    const { page } = this;
    const { times } = page;
    const { start, end } = page.range();
    return [
      `${page.fullTitle}: ${this.heading.textContent}`,
      `${times.alone(times.period(start, end))}, released until ${times.until(page.whole().end)}. ${costs(page.detail)}`,
      "The band holds the true number with 95 % probability at each single point.",
      ...this.warnings(),
    ];
  }

  // Return the rows of a file, with a column that says what the stream counts, if it does not count every event.
  words(heads, rows) {
    const { warning } = this.page.detail;
    const { meaning, amounts } = this.answer;
    return meaning && (warning || amounts) ? [[...heads, "meaning"], rows.map((row) => [...row, meaning])] : [heads, rows];
  }

  // Return the lines of a saved picture that say what the stream counts, if it does not count every event. Each
  // sentence is a line, because a picture is narrow.
  warnings() {
    const { amounts, meaning } = this.answer;
    return (amounts ? meaning : this.page.detail.warning).match(/.+?\.(?= |$)/g)?.map((line) => line.trim()) ?? [];
  }

  file() {
    return [this.page.stream, ...this.page.keys.slice(0, 4), this.name].join("-").replace(/[^\w-]+/g, "-");
  }

  // Name the table and the buttons by the heading, which may have changed with what the panel shows.
  #nameParts() {
    this.numbers.setAttribute("aria-label", `Numbers: ${this.page.heads(this.heading.textContent)}`);
    this.help.button.setAttribute("aria-label", `About: ${this.heading.textContent}`);
    for (const button of this.saving.children) button.setAttribute("aria-label", `Save ${this.heading.textContent} as ${button.textContent}`);
  }

  #saver(name, act, title = "") {
    const button = make("button", { type: "button", title, "aria-label": `Save ${this.heading.textContent} as ${name}` }, name);
    button.addEventListener("click", async () => {
      try {
        if (this.answer) await act();
      } catch (error) {
        if (error.name !== "ApiError") throw error;
        say(this.urgent, `No file: ${error.message}.`);
      }
    });
    return button;
  }
}

// Return the data of a chart with one line, from an answer of /series.
export function pictureOf(answer, page, name = "") {
  const { start, end, stderr, nodes, seq, view } = answer;
  const { numbers, counted } = page.measure;
  const used = nodes?.some(Boolean) ? nodes : null; // an approximate count is made of all of them so far
  return { start, end, stderr, nodes: used, seq, view, numbers, counted, afloat: page.measure.name === "mean", lines: [{ name, ...shown(answer, page.measure) }], levels: [], marks: page.marks };
}

// Return the columns of an answer without the points that the measure leaves out.
function shown({ value, lower, upper, inner }, { enough }) {
  if (!enough) return { value, lower, upper, inner };
  const kept = value.map((one, i) => enough({ value: one, interval: [lower[i], upper[i]] }));
  return Object.fromEntries(Object.entries({ value, lower, upper }).map(([name, column]) => [name, column.map((one, i) => (kept[i] ? one : null))]));
}

export function showPoint(host, point) {
  if (!point) return host.replaceChildren();
  const parts = [`${point.newest ?? ""}${point.when}  `];
  for (const [i, { name, value, lower, upper }] of point.lines.entries()) {
    if (name) parts.push(`${i ? "· " : ""}${name} `);
    parts.push(bold(value), " ", ...(lower === null ? [] : [make("span", { className: "ends" }, `(${lower} to ${upper})`)]), "  ");
  }
  host.title = point.nodes ? `From ${point.nodes.toLocaleString("en")} released ${point.nodes === 1 ? "count" : "counts"}` : "";
  const [newest, ...others] = point.changes.toReversed();
  if (newest) parts.push(make("span", { className: "change", dataset: { kind: newest.kind } }, `  ${newest.words}`), others.length ? ` and ${others.length} more` : "");
  for (const { number, text } of point.annotations ?? []) parts.push(make("span", { className: "annotation" }, `  ${number} ${text}`));
  return host.replaceChildren(...parts);
}
