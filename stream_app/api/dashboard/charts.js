// A chart of values with the band of their intervals, drawn by uPlot.

import { between, count, error, instant } from "./words.js";

const HEIGHTS = { plot: { wide: 290, narrow: 230 }, strip: { wide: 120, narrow: 110 } };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

// Labels of the time axis, by the distance of its ticks in seconds: a format, and what is added on the next
// line where the year or the day changes (columns as uPlot wants them).
const DAY_CHANGES = [null, "\n{D} {MMM}", null, null, null, 1];
const TIME_LABELS = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", ...DAY_CHANGES],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", ...DAY_CHANGES],
];

export class BandChart {
  // Options: stepped (each value stands for a span of time), around (the band only, around zero), sync (a
  // key shared by charts whose cursors move together), title(), onZoom(start, end), onReset(), and the sinks
  // readout(point) and speak(text).
  constructor(host, options) {
    this.host = host;
    this.options = options;
    this.series = null;
    this.plot = null;
    new ResizeObserver(() => this.#resize()).observe(host);
    host.addEventListener("keydown", (event) => this.#key(event));
    host.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }, true, true));
  }

  // Show a series answer of the API between two instants; redraws once.
  show(series, binSeconds, { start, end }) {
    this.series = series;
    this.options.binSeconds = binSeconds;
    this.domain = [start, end];
    const data = columns(series, this.options);
    if (this.plot) this.plot.setData(data);
    else if (data[0].length) this.#build(data);
    this.host.dataset.points = String(series.value.length);
    this.host.dataset.seq = String(series.seq);
    this.host.dataset.view = series.view;
    this.#read(this.plot?.cursor.idx ?? null);
    this.host.setAttribute("aria-label", summary(this.options.title(), series, binSeconds));
  }

  // Colours are read from the style sheet once per plot, so a new theme needs a new plot.
  restyle() {
    if (!this.plot) return;
    const data = this.plot.data;
    this.plot.destroy();
    this.#build(data);
  }

  #build(data) {
    this.host.replaceChildren();
    this.plot = new uPlot(this.#plotOptions(), data, this.host);
    this.plot.over.addEventListener("dblclick", () => this.options.onReset());
  }

  #plotOptions() {
    const { stepped, around, sync } = this.options;
    const accent = colour("--accent");
    const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const axis = {
      stroke: colour("--muted"),
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { show: false },
      font: `12px ${getComputedStyle(document.body).fontFamily}`,
    };
    const onlyLine = (ink) => (u, index) => (index === 1 ? ink : "transparent");
    const edge = { paths, stroke: "transparent", width: 0, points: { show: false } };
    return {
      ...this.#size(),
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      padding: [8, 24, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        sync: { key: sync, setSeries: false },
        points: { size: 9, width: 2, fill: onlyLine(accent), stroke: onlyLine(colour("--card")) },
      },
      scales: { x: { time: true, range: () => this.domain }, y: { range: (u, low, high) => limits(low, high, stepped) } },
      axes: [
        { ...axis, space: 70, show: !around, values: TIME_LABELS },
        { ...axis, size: 58, space: around ? 24 : 40, values: (u, ticks) => ticks.map((tick) => (around && tick > 0 ? "+" : "") + compact.format(tick)) },
      ],
      series: [
        {},
        { paths, stroke: accent, width: stepped || around ? 1.25 : 2, points: { show: false } },
        edge,
        edge,
      ],
      bands: [{ series: [3, 2], fill: colour("--band") }],
      hooks: {
        setCursor: [(u) => this.#read(u.cursor.idx)],
        setSelect: [(u) => this.#zoom(u)],
      },
    };
  }

  #size() {
    const width = Math.max(this.host.clientWidth, 200);
    const heights = this.options.around ? HEIGHTS.strip : HEIGHTS.plot;
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

  #read(index) {
    const { series } = this;
    const last = series ? series.value.length - 1 : -1;
    const at = index === null || index === undefined || index > last ? last : index;
    this.options.readout(at < 0 ? null : point(series, at, this.options));
  }

  #key(event) {
    if (event.key === "Escape") return this.options.onReset();
    if (!this.plot || !this.series.value.length) return undefined;
    const last = this.series.value.length - 1;
    const now = this.plot.cursor.idx ?? last;
    const big = Math.max(1, Math.round(last / 20));
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - big, PageDown: now + big, Home: 0, End: last };
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    const to = Math.min(Math.max(moves[event.key], 0), last);
    this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][to], "x"), top: 10 }, true, true);
    const said = point(this.series, to, this.options);
    this.options.speak(`${said.when}: ${said.value}${this.options.around ? "" : `, between ${said.lower} and ${said.upper}`}`);
    return undefined;
  }
}

// The columns of a plot. A stepped one gets a last edge, where the last value ends.
function columns(series, { stepped, around }) {
  const { start, end, value, lower, upper } = series;
  if (around) return [end, value.map(() => 0), lower.map((low, i) => low - value[i]), upper.map((high, i) => high - value[i])];
  if (!stepped || !value.length) return [end, value, lower, upper];
  const closed = (column) => [...column, column[column.length - 1]];
  return [[...start, end[end.length - 1]], closed(value), closed(lower), closed(upper)];
}

// One point in words.
export function point(series, index, { stepped = false, around = false, binSeconds }) {
  const [lower, upper] = between(series.lower[index], series.upper[index]);
  const until = instant(series.end[index], binSeconds);
  const half = error((series.upper[index] - series.lower[index]) / 2);
  return {
    when: stepped ? `${instant(series.start[index], binSeconds)} – ${until}` : `until ${until}`,
    value: around ? `± ${half}` : count(series.value[index]),
    stderr: error(series.stderr[index]),
    lower,
    upper,
    interval: around ? "" : `(${lower} to ${upper})`,
  };
}

// Bars stand on zero; everything else takes the room that it needs.
function limits(low, high, stepped) {
  if (low === null || high === null) return [0, 1];
  const room = Math.max((high - low) * 0.06, 0.5);
  return [stepped && low >= 0 ? 0 : low - room, high + room];
}

function summary(title, series, binSeconds) {
  const last = series.value.length - 1;
  if (last < 0) return `${title}: nothing released yet`;
  const { when, value, lower, upper } = point(series, last, { binSeconds });
  return `${title}, ${last + 1} points; the last, ${when}: ${value}, between ${lower} and ${upper}`;
}
