// A chart of values with the band of their intervals, drawn by uPlot.

import { between, count, error, instant } from "./words.js";

const HEIGHT = { wide: 300, narrow: 230 };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export class BandChart {
  // Options: stepped (each value stands for a span of time), zeroBased, binSeconds, sync (a key shared by
  // charts whose cursors move together), onZoom(start, end), onReset(), readout and speak (text sinks).
  constructor(host, options) {
    this.host = host;
    this.options = options;
    this.series = null;
    this.plot = null;
    new ResizeObserver(() => this.#resize()).observe(host);
    host.addEventListener("keydown", (event) => this.#key(event));
    host.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
  }

  // Show a series answer of the API; redraws at most once per call.
  show(series, binSeconds) {
    this.series = series;
    this.options.binSeconds = binSeconds;
    const data = columns(series, this.options.stepped);
    if (this.plot) this.plot.setData(data);
    else if (data[0].length) this.#build(data);
    this.host.dataset.points = String(series.value.length);
    this.host.dataset.seq = String(series.seq);
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
    const { stepped, zeroBased, sync } = this.options;
    const accent = colour("--accent");
    const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const axis = {
      stroke: colour("--muted"),
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { show: false },
      font: `12px ${getComputedStyle(document.body).fontFamily}`,
    };
    const edge = { paths, stroke: "transparent", width: 0, points: { show: false } };
    return {
      ...this.#size(),
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        sync: { key: sync, setSeries: false },
        points: { size: 8, fill: accent, stroke: colour("--card"), width: 2, show: (u, i) => (i === 1 ? undefined : false) },
      },
      scales: { x: { time: true }, y: { range: (u, low, high) => limits(low, high, zeroBased) } },
      axes: [
        { ...axis, space: 70 },
        { ...axis, size: 58, values: (u, ticks) => ticks.map((tick) => compact.format(tick)) },
      ],
      series: [
        {},
        { paths, stroke: accent, width: stepped ? 1.25 : 2, points: { show: false } },
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
    return { width, height: width < 600 ? HEIGHT.narrow : HEIGHT.wide };
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
    this.options.readout(at < 0 ? null : point(series, at, this.options.stepped, this.options.binSeconds));
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
    this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][to], "x") + 0.5, top: 10 });
    const said = point(this.series, to, this.options.stepped, this.options.binSeconds);
    this.options.speak(`${said.when}: ${said.value}, between ${said.lower} and ${said.upper}`);
    return undefined;
  }
}

// The columns of a plot. A stepped one gets a last edge, where the last value ends.
function columns(series, stepped) {
  const { start, end, value, lower, upper } = series;
  if (!stepped || !value.length) return [end, value, lower, upper];
  const closed = (column) => [...column, column[column.length - 1]];
  return [[...start, end[end.length - 1]], closed(value), closed(lower), closed(upper)];
}

export function point(series, at, stepped, binSeconds) {
  const [lower, upper] = between(series.lower[at], series.upper[at]);
  const until = instant(series.end[at], binSeconds);
  return {
    when: stepped ? `${instant(series.start[at], binSeconds)} – ${until}` : `until ${until}`,
    value: count(series.value[at]),
    stderr: error(series.stderr[at]),
    lower,
    upper,
  };
}

function limits(low, high, zeroBased) {
  if (low === null || high === null) return [0, 1];
  const room = Math.max((high - low) * 0.06, 0.5);
  return [zeroBased && low >= 0 ? 0 : low - room, high + room];
}

function summary(title, series, binSeconds) {
  const last = series.value.length - 1;
  if (last < 0) return `${title}: nothing released yet`;
  const { when, value, lower, upper } = point(series, last, false, binSeconds);
  return `${title}, ${last + 1} points; the last, ${when}: ${value}, between ${lower} and ${upper}`;
}
