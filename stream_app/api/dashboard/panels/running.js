// The panel of the running count. A second chart below it shows the interval around the estimate.

import { make } from "../elements.js";
import { Panel, pictureOf, showPoint } from "../panel.js";
import { pointsFor } from "../ranges.js";
import { COUNTS, error } from "../words.js";

export class Running extends Panel {
  constructor(page) {
    super(page, "running", page.detail.counts === "users" ? "Running count, summed over epochs" : "Running count", "The small chart shows the band alone: how far the true number may lie above or below.");
    this.band = this.chart();
    const readout = make("p", { className: "readout", id: page.place("band-readout") });
    this.body.append(make("div", { className: "card-head strip-head" }, make("h3", {}, "Its band"), readout));
    this.strip = this.chart({
      strip: true,
      numbers: { ...COUNTS, value: error },
      title: () => page.heads("Band of the running count"),
      readout: (point) => showPoint(readout, point),
    }, "band");
  }

  async ask(page) {
    return page.points({ kind: "running", inner: true, ...page.range(), points: pointsFor(this.body.clientWidth, page.measure.most) });
  }

  show(answer, page) {
    // Beside a part, the count is still of everything since the stream began, as the headline's second number is.
    this.heading.textContent = page.isPart ? `${page.measure.running} since ${page.times.onPage(page.times.from(page.whole().start))}` : page.measure.running;
    const picture = pictureOf(answer, page);
    // A rule's running count begins with this stream, and the chart with the first one that it continues.
    picture.levels = page.detail.history ? [] : page.levels(({ measure }) => measure === "count");
    this.band.show(picture, page.binSeconds, page.domain());
    const { value, lower, upper, inner } = picture.lines[0];
    const from = (column) => column.map((end, i) => (end === null ? null : end - value[i]));
    const around = { name: "", half: true, value: value.map((one) => (one === null ? null : 0)), lower: from(lower), upper: from(upper), inner };
    const strip = { ...picture, numbers: undefined, counted: undefined, nodes: null, levels: [], beside: picture.levels, marks: [], lines: [around] };
    this.strip.show(strip, page.binSeconds, page.domain());
  }

  restyle() {
    super.restyle();
    this.strip.restyle();
  }

  canvases() {
    return [this.band.canvas, this.strip.canvas];
  }
}
