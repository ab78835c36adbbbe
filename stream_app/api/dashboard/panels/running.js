// The panel of the running count. A second chart below it shows the interval around the estimate.

import { make } from "../elements.js";
import { Panel, pictureOf, showPoint } from "../panel.js";
import { COUNTS, error } from "../words.js";

export class Running extends Panel {
  constructor(page) {
    super(page, "running", page.detail.this_epoch ? "Running count, summed over epochs" : "Running count");
    this.band = this.chart();
    const readout = make("p", { className: "readout", id: "band-readout" });
    this.body.append(make("div", { className: "card-head strip-head" }, make("h3", {}, "Its band: how far the true number may lie above or below"), readout));
    this.strip = this.chart({
      strip: true,
      numbers: { ...COUNTS, value: error },
      title: () => "Band of the running count",
      readout: (point) => showPoint(readout, point),
    }, "band");
  }

  async ask(page) {
    const points = Math.round(Math.min(Math.max(this.body.clientWidth / 2, 240), 600));
    return page.ask("series", { kind: "running", view: page.view, ...page.range(), points });
  }

  show(answer, page) {
    const picture = pictureOf(answer, page);
    picture.levels = page.levels(({ measure }) => measure === "count");
    this.band.show(picture, page.binSeconds, page.range());
    const { value, lower, upper } = answer;
    const around = {
      name: "", half: true,
      value: value.map(() => 0), lower: lower.map((low, i) => low - value[i]), upper: upper.map((high, i) => high - value[i]),
    };
    this.strip.show({ ...pictureOf(answer, page), nodes: null, marks: [], lines: [around] }, page.binSeconds, page.range());
  }

  restyle() {
    super.restyle();
    this.strip.restyle();
  }

  canvases() {
    return [this.band.canvas, this.strip.canvas];
  }
}
