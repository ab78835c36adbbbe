// The panel that shows how large the errors would be at another epsilon. This measures nothing, because errors
// depend only on the plan.

import { make } from "../elements.js";
import { Panel } from "../panel.js";
import { longest, roomFor } from "../ranges.js";
import { grid } from "../tables.js";
import { utc } from "../times.js";
import { error } from "../words.js";

const TITLE = "Noise at another ε";
const LEAST = -2, MOST = 1.3; // ends of the slider as powers of ten: 0.01 and 20

export class Preview extends Panel {
  constructor(page) {
    super(page, "preview", TITLE,
      "The values are those released; only the bands change. Errors follow from the plan alone, so looking costs no privacy.");
    this.slider = make("input", { type: "range", id: "epsilon-slider", min: LEAST, max: MOST, step: 0.05 });
    this.output = make("output", { for: "epsilon-slider", id: "epsilon-chosen" });
    this.tools.append(make("label", { className: "picker" }, make("span", {}, "ε"), this.slider, this.output));
    this.slider.addEventListener("input", () => this.#said());
    this.slider.addEventListener("change", () => page.choose({ epsilon: this.#epsilon() }));
    this.band = this.chart({ stepped: true, fromZero: true });
    this.questions = make("div", { className: "questions" });
    this.help.box.append(this.questions);
  }

  async ask(page) {
    const own = page.detail.private ? parse(page.detail.epsilon) : 1;
    const epsilon = page.epsilon ?? Math.max(0.01, Number((own / 4).toPrecision(2)));
    this.slider.value = String(Math.log10(epsilon));
    this.#said(epsilon);
    // The error of a mean depends on its events, so no plan tells it: totals are shown in its place.
    this.previewed = page.measures.find(({ name }) => name === (page.measure.name === "count" ? "count" : "sum"));
    const of = this.previewed.name === "count" ? null : this.previewed.name;
    const answer = await page.ask("preview", { ...page.slices(Math.min(100, roomFor(this.body.clientWidth))), epsilon, of });
    const instead = page.measure.name === "mean" ? "No plan tells the error of a mean, so totals are shown." : "";
    return { ...answer, note: [answer.note, instead].filter(Boolean).join(" ") };
  }

  show(answer, page) {
    const { start, end, value, half_width: now, preview_half_width: then, seq } = answer;
    const around = (halves, sign) => value.map((count, i) => count + sign * halves[i]);
    const lines = [
      { name: `ε\u00a0${answer.epsilon}`, value, lower: around(now, -1), upper: around(now, 1) },
      { name: `ε\u00a0${answer.preview_epsilon}`, quiet: true, value, lower: around(then, -1), upper: around(then, 1) },
    ];
    const bin = end.length ? longest(start, end) : page.binSeconds;
    const { previewed: measure } = this;
    const counts = measure.name === "count";
    this.heading.textContent = counts ? TITLE : `${TITLE}: ${measure.title}`;
    this.band.show({ start, end, seq, numbers: measure.numbers, counted: measure.counted, lines: lines.reverse() }, bin, page.range());
    this.questions.replaceChildren(grid(`Half the width of 95 % intervals${counts ? `, in ${page.detail.noun}` : ` of ${measure.title}`}`,
      [`A ${measure.counted.toLowerCase()} of`, `at ε\u00a0=\u00a0${answer.epsilon}`, `at ε\u00a0=\u00a0${answer.preview_epsilon}`],
      answer.questions.map((one) => [one.question, `±\u00a0${error(one.half_width)}`, `±\u00a0${error(one.preview_half_width)}`])));
  }

  csv() {
    const { start, end, value, half_width: now, preview_half_width: then } = this.answer;
    return this.words(["start", "end", "value", "half_width", "preview_half_width", "private"],
      end.map((to, i) => [utc(start[i]), utc(to), value[i], now[i], then[i], this.answer.private]));
  }

  #epsilon() {
    return Number((10 ** Number(this.slider.value)).toPrecision(2));
  }

  #said(epsilon = this.#epsilon()) {
    this.output.textContent = String(epsilon);
    this.slider.setAttribute("aria-valuetext", `epsilon ${epsilon}`);
  }
}

// Return the number that a text such as "1", "0.25" or "1/3" means.
function parse(text) {
  const [above, below] = text.split("/").map(Number);
  return below ? above / below : above;
}
