// Draws lines with uPlot. A band around each line shows the intervals of its points. The horizontal axis is time
// or the stream's value.
//
// A chart draws a picture: {start, end, lines, nodes, seq, view, levels, marks}. ``end`` has the position of each
// point on the horizontal axis. If each point counts a span of that axis, ``start`` has the starts of the spans.
// A line is {name, value, lower, upper, inner}; ``inner`` has half widths of intervals inside of the band. A line
// with ``dash``, true or lengths, is dashed; a line with ``quiet`` has a muted colour, and one with ``ink`` the colour of this variable.
// ``numbers`` writes the lines' values, and ``counted`` names them; without them the options of the chart do.
// With ``afloat`` the vertical axis need not begin at 0.
// ``levels`` are thresholds {value, name, short}; ``beside``, if given, those of the chart above. ``marks`` are changes of alerts {at, name, kind}.

import { colour } from "./frame.js";
import { annotationsUnder, bandOf, drawAlone, drawInner, drawLevels, drawMarks, drawNames, drawZero, inkOf, levelsWithin, marksUnder, roomAbove, roomBeside } from "./chart_marks.js";
import { breaksAfter, pointsAlone } from "./gaps.js";
import { amount, around, COUNTS } from "./words.js";

const HEIGHTS = { plot: { wide: 270, narrow: 220 }, strip: { wide: 120, narrow: 110 } };
const STRONG = { ofWindow: 0.4, least: 270, most: 460 }; // the height of a page's first chart
const WHOLE_STEPS = [1, 10, 100, 1000, 10000].flatMap((one) => [one, 2 * one, 5 * one]);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 6 }); // 1.25K

export class BandChart {
  // Options:
  //   stepped: each value belongs to a whole span and is drawn as a step.
  //   strip: the chart is low and shows signed numbers.
  //   value: the horizontal axis is the stream's value, not time.
  //   place(number): text for a whole number on the horizontal axis, for example the key at this place.
  //   strong: the first chart of a page, which is higher than the others.
  //   fromZero: the vertical axis starts at 0.
  //   numbers: how to write the lines' values. times(): how to write instants.
  //   gaps(): times that nobody measured, pairs [start, end]; lines break there.
  //   annotations(): texts beside times, {start, end, number, text}.
  //   legend: the names of lines stand above the chart, not at their ends.
  //   sync: charts with the same key move their cursors together.
  //   title(): the chart's title. onZoom(start, end), onReset(): called when the reader zooms in or out.
  //   readout(point), speak(text): show or speak the point under the cursor.
  constructor(host, options) {
    this.host = host;
    this.options = { numbers: COUNTS, gaps: () => [], annotations: () => [], ...options };
    this.picture = null;
    this.plot = null;
    new ResizeObserver(() => this.#resize()).observe(host);
    host.addEventListener("keydown", (event) => this.#key(event));
    host.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }, true, true));
  }

  // Draw a picture. Args: spanSeconds, the length of each point's span; start and end of the horizontal axis.
  show(picture, spanSeconds, { start, end }) {
    const known = this.plot && this.picture.lines.length === picture.lines.length;
    this.picture = picture;
    this.spanSeconds = spanSeconds;
    this.domain = [start, end];
    this.breaks = breaksAfter(picture.end, this.options.gaps());
    const data = this.#columns();
    if (known) this.plot.setData(data);
    else if (data[0].length) this.#build(data);
    this.host.dataset.points = String(picture.end.length);
    this.host.dataset.seq = String(picture.seq);
    this.host.dataset.view = picture.view ?? "";
    this.#read(this.plot?.cursor.idx ?? null);
    this.host.setAttribute("aria-label", this.#summary());
  }

  // Draw again after a change of the theme. A plot reads its colours only once, so this makes a new plot.
  restyle() {
    if (this.plot) this.#build(this.plot.data);
  }

  get canvas() {
    return this.plot?.ctx.canvas ?? null;
  }

  // Return the texts that describe one point. They name all changes of alerts since the previous point.
  point(index) {
    const { lines, start, end, nodes } = this.picture;
    const { unit = "", times } = this.options;
    const { numbers } = this;
    const when = this.options.value ? this.#where(index) : this.options.stepped && start
      ? times().period(start[index], end[index], this.spanSeconds) : `until ${times().until(end[index], this.spanSeconds)}`;
    const said = lines.map((line) => lineWords(line, index, numbers, unit));
    return { when, lines: said, nodes: nodes ? nodes[index] : null, changes: this.#changes(index) };
  }

  get numbers() {
    return this.picture?.numbers ?? this.options.numbers;
  }

  // Return the name of the values, for heads of columns.
  get counted() {
    return this.picture?.counted ?? this.options.counted ?? "Count";
  }

  #where(index) {
    const { start, end } = this.picture;
    if (this.options.place) return this.options.place(Math.round(start ? (start[index] + end[index]) / 2 : end[index]));
    return start ? `${amount(start[index])} to ${amount(end[index])}` : `up to ${amount(end[index])}`;
  }

  #changes(index) {
    const { start, end, marks } = this.picture;
    if (!marks?.length) return [];
    const from = index ? end[index - 1] : start ? start[0] : -Infinity;
    return this.#told(marks.filter(({ at }) => at > from && at <= end[index]));
  }

  // Add a text to each change of an alert, for example "busy firing at 3 Jan 2013, 02:00".
  #told(marks) {
    return marks.map((mark) => ({ ...mark, words: `${mark.name} ${mark.kind} at ${this.options.times().until(mark.at, null)}` }));
  }

  #columns() {
    const { lines, start, end } = this.picture;
    const columns = lines.flatMap((line) => [line.value, line.lower, line.upper]);
    if (!this.options.stepped || !end.length) return [end, ...columns];
    // uPlot draws a step up to the next point that has a value. So one point is added at the end of the last span, and a
    // point without a value gets the one before, which the gaps of the line hide.
    const closed = (column) => {
      let last = null;
      return [...column, column[column.length - 1]].map((one) => (last = one ?? last));
    };
    return [[...start, end[end.length - 1]], ...columns.map(closed)];
  }

  #build(data) {
    this.plot?.destroy();
    this.host.replaceChildren();
    this.plot = new uPlot(this.#plotOptions(), data, this.host);
    this.plot.over.addEventListener("dblclick", () => this.options.onReset?.());
  }

  #plotOptions() {
    const { stepped, strip, sync, value: overValue, place, times, onZoom, legend, annotations } = this.options;
    const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font };
    const lines = this.picture.lines;
    const named = lines.length > 1 && !strip && !legend;
    const gaps = (u, place, first, last, unknown) => this.#breaksIn(u, [...unknown, ...this.#unknownSteps(u, place)]);
    const edge = { paths, gaps, stroke: "transparent", width: 0, points: { show: false } };
    const dots = (pick) => (u, index) => (index % 3 === 1 ? pick(lines[(index - 1) / 3]) : "transparent");
    const places = { values: (u, ticks) => ticks.map(place), incrs: WHOLE_STEPS, space: 90 };
    const across = place ? places : overValue ? { values: (u, ticks) => ticks.map(amount) } : times().axis;
    return {
      ...this.#size(),
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), this.options.times().clockZone),
      padding: [() => this.#above(), () => this.#beside(named), strip ? 8 : 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        dataIdx: (u, place, nearest) => this.#known(place, this.#under(u, nearest)),
        drag: { x: Boolean(onZoom), y: false, setScale: false },
        sync: sync ? { key: sync, setSeries: false } : undefined,
        points: { size: 9, width: 2, fill: dots(inkOf), stroke: dots(() => colour("--card")) },
      },
      scales: { x: { time: !overValue, range: () => this.domain }, y: { range: (u, low, high) => this.#limits(low, high) } },
      axes: [
        { ...axis, space: 70, gap: 8, ...across, size: overValue ? 32 : 50, show: !strip },
        { ...axis, size: 58, space: strip ? 18 : 40, values: (u, ticks, place, space, distance) => ticks.map((tick) => (strip && tick > 0 ? "+" : "") + tickText(tick, distance)) },
      ],
      series: [
        {},
        ...lines.flatMap((line) => [
          { paths, gaps, stroke: inkOf(line), width: stepped || strip ? 1.25 : 2, dash: line.dash === true ? [6, 5] : line.dash, points: { show: false } },
          edge,
          edge,
        ]),
      ],
      bands: lines.map((line, i) => ({ series: [3 * i + 3, 3 * i + 2], fill: bandOf(line) })),
      hooks: {
        drawClear: [(u) => drawInner(u, this.picture, stepped, new Set(this.breaks))],
        setCursor: [(u) => this.#read(this.#under(u, u.cursor.idx))],
        setSelect: [(u) => this.#zoom(u)],
        draw: [(u) => {
          if (!strip) drawZero(u);
          if (!stepped) drawAlone(u, lines, pointsAlone(u.data[0].length, this.breaks));
          const { levels = [], marks = [] } = this.picture;
          drawLevels(u, levels);
          drawMarks(u, marks, annotations());
          drawNames(u, named ? this.picture.lines : [], levels);
        }],
      },
    };
  }

  #above() {
    return roomAbove(this.picture, this.options.strip ? [] : this.options.annotations(), this.domain, this.#size());
  }

  // Return the room right of the plot. A chart below another one has the room of that one, so that their times agree.
  #beside(named) {
    const { lines, levels = [], beside = levels } = this.picture;
    return roomBeside(named ? lines : [], beside, this.#size().width);
  }

  // Return where lines break: pairs of pixels, in order. Args: unknown, those of points without a value.
  #breaksIn(u, unknown) {
    const { start, end } = this.picture;
    const next = this.options.stepped ? start : end;
    const pixel = (at) => u.valToPos(at, "x", true);
    const found = [...unknown, ...this.breaks.map((i) => [pixel(end[i]), pixel(next[i + 1])])].sort(([one], [other]) => one - other);
    let last = -Infinity;
    return found.map(([from, to]) => [Math.max(from, last), (last = Math.max(to, last))]);
  }

  // Return the steps without a value as pairs of pixels, with the vertical line to the next step. Args: place, of uPlot's
  // series, which are three for each line.
  #unknownSteps(u, place) {
    const { start, end } = this.picture;
    if (!this.options.stepped) return [];
    const pixel = (at) => u.valToPos(at, "x", true);
    return this.#column(place).flatMap((value, i) => (value === null && i ? [[pixel(start[i]), pixel(end[i]) + 1]] : []));
  }

  #column(place) {
    const line = this.picture.lines[Math.floor((place - 1) / 3)];
    return [line.value, line.lower, line.upper][(place - 1) % 3];
  }

  // Return the index of a point; null if the series has no value there, so that no dot is drawn.
  #known(place, index) {
    return place && index !== null && this.#column(place)[index] === null ? null : index;
  }

  // Return the ends of the vertical axis. With the option fromZero it starts at 0, unless values are negative.
  #limits(low, high) {
    if (low === null || high === null) return [0, 1];
    const [least, most] = levelsWithin(this.picture.levels ?? [], low, high);
    const flat = this.numbers === COUNTS || most - least < 1e-6;
    const room = Math.max((most - least) * 0.06, flat ? 0.5 : 1e-9);
    return [this.options.fromZero && !this.picture.afloat && least >= 0 ? 0 : least - room, most + room];
  }

  #size() {
    const width = Math.max(this.host.clientWidth, 200);
    if (this.options.strong && width >= 600) return { width, height: Math.round(Math.min(Math.max(STRONG.ofWindow * window.innerHeight, STRONG.least), STRONG.most)) };
    const own = parseFloat(getComputedStyle(this.host).getPropertyValue("--plot-height"));
    if (own) return { width, height: own };
    const heights = this.options.strip ? HEIGHTS.strip : HEIGHTS.plot;
    return { width, height: width < 600 ? heights.narrow : heights.wide };
  }

  #resize() {
    const size = this.#size();
    if (this.plot && (this.plot.width !== size.width || this.plot.height !== size.height)) this.plot.setSize(size);
  }

  #zoom(u) {
    if (u.select.width < 6) return;
    const [from, to] = [u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x"));
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.options.onZoom(from, to);
  }

  // Return the index of the point whose span contains the pointer. uPlot itself would take the nearest start.
  #under(u, nearest) {
    if (!this.options.stepped || !nearest) return nearest;
    return u.valToPos(u.data[0][nearest], "x") - u.cursor.left > 0.5 ? nearest - 1 : nearest;
  }

  #read(index) {
    const last = this.picture ? this.picture.end.length - 1 : -1;
    const at = index === null || index === undefined || index > last ? last : index;
    if (at < 0) return this.options.readout(null);
    const point = this.point(at);
    const near = at === index ? marksUnder(this.plot, this.picture.marks ?? []) : [];
    if (near.length) point.changes = this.#told(near);
    if (at === index) point.annotations = annotationsUnder(this.plot, this.options.annotations());
    else point.newest = "Last: ";
    return this.options.readout(point);
  }

  #key(event) {
    if (event.key === "Escape") return this.options.onReset?.();
    if (!this.plot || !this.picture.end.length) return undefined;
    const last = this.picture.end.length - 1;
    const now = this.plot.cursor.idx ?? last;
    const big = Math.max(1, Math.round(last / 20));
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - big, PageDown: now + big, Home: 0, End: last };
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    const to = Math.min(Math.max(moves[event.key], 0), last);
    this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][to], "x"), top: 10 }, true, true);
    this.options.speak(this.#inWords(to));
    return undefined;
  }

  #summary() {
    const last = this.picture.end.length - 1;
    const title = this.options.title();
    return last < 0 ? `${title}: nothing to show` : `${title}, ${last + 1} points; the last, ${this.#inWords(last)}`;
  }

  #inWords(index) {
    const { when, lines, changes } = this.point(index);
    const each = lines.map(({ name, value, lower, upper }) => `${name ? `${name} ` : ""}${value}${lower === null ? "" : `, between ${lower} and ${upper}`}`);
    return [`${when}: ${each.join("; ")}`, ...changes.map(({ words }) => words)].join("; ");
  }
}

// Return the text of a tick. Neighbouring ticks that are close have the decimals that tell them apart.
// A tick has the decimals of the distance between ticks: 0.25, not 0.3.
function tickText(tick, distance) {
  if (distance >= 1 || distance < 1e-4) return compact.format(tick);
  const decimals = [1, 2, 3, 4, 5].find((n) => Math.abs(distance * 10 ** n - Math.round(distance * 10 ** n)) < 1e-6);
  return tick.toFixed(decimals ?? 6);
}

function lineWords(line, index, numbers, unit) {
  const value = line.value[index];
  if (line.half) return { name: line.name, value: around(0, line.lower[index], line.upper[index]), lower: null, upper: null };
  const interval = [line.lower[index], line.upper[index]];
  const said = value === null ? numbers.none ?? "cannot be told" : numbers.value(value, interval) + unit;
  const [lower, upper] = line.lower[index] === null ? [null, null] : numbers.between(...interval);
  return { name: line.name, value: said, lower, upper };
}
