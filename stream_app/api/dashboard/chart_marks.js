// Draws four things over a chart: thresholds, changes of alerts, annotations and the names of lines.

import { colour } from "./frame.js";

const LEAST_ROOM = 24; // pixels per change; with less room, ticks replace the lines
const PLAIN = 10, ROW = 15; // pixels above a plot without names, and of each row of names
const REACH = 5; // pixels between a change and a pointer that points at it
const DASH = { resolved: [4, 3], pending: [1, 3], inactive: [1, 3] };
const INK = { firing: "--bad", resolved: "--good", pending: "--wait", inactive: "--muted" };

// Return the colours of a line and of its band.
export const inkOf = ({ quiet, ink }) => colour(quiet ? "--muted" : ink ?? "--accent");
export const bandOf = ({ quiet, ink }) => (ink && !quiet ? `${colour(ink)}26` : colour(quiet ? "--band-quiet" : "--band"));

// Return the ends of the vertical axis: extended to the thresholds, except to those so far away that the chart
// would become too flat to read.
export function levelsWithin(levels, low, high) {
  const room = 2 * Math.max(high - low, 1);
  const near = levels.map((level) => level.value).filter((value) => value > low - room && value < high + room);
  return [Math.min(low, ...near), Math.max(high, ...near)];
}

// Draw the inner intervals of a band below it, so that the band is darker where the true number more likely lies.
export function drawInner(u, { lines, start, end }, stepped, breaks) {
  const [x, y] = ["x", "y"].map((axis) => (at) => u.valToPos(at, axis, true));
  const { left, top, width, height } = u.bbox;
  onPaper(u, (paper) => {
    paper.beginPath();
    paper.rect(left, top, width, height);
    paper.clip();
    for (const line of lines) {
      for (const half of line.inner ?? []) {
        const known = (i) => line.value[i] !== null && line.value[i] !== undefined;
        paper.beginPath();
        line.value.forEach((value, i) => {
          const next = stepped ? i : i + 1;
          if (!known(i) || !known(next) || (!stepped && breaks.has(i))) return;
          const [from, to] = stepped ? [start[i], end[i]] : [end[i], end[next]];
          paper.moveTo(x(from), y(value + half[i]));
          paper.lineTo(x(to), y(line.value[next] + half[next]));
          paper.lineTo(x(to), y(line.value[next] - half[next]));
          paper.lineTo(x(from), y(value - half[i]));
        });
        paper.fillStyle = bandOf(line);
        paper.fill();
      }
    }
  });
}

// Draw points that no line reaches, because nobody measured the times beside them: a dot, and its interval as a bar.
export function drawAlone(u, lines, places) {
  const at = (value) => u.valToPos(value, "y", true);
  onPaper(u, (paper, ratio) => {
    for (const line of lines) {
      const { value, lower, upper } = line;
      const ink = inkOf(line);
      for (const place of places.filter((one) => value[one] !== null)) {
        const x = u.valToPos(u.data[0][place], "x", true);
        stroke(paper, [[x, at(lower[place])], [x, at(upper[place])]], bandOf(line), 6 * ratio, []);
        paper.beginPath();
        paper.arc(x, at(value[place]), 2.5 * ratio, 0, 2 * Math.PI);
        paper.fillStyle = ink;
        paper.fill();
      }
    }
  });
}

// Draw a line at 0, where values below it are in sight, too.
export function drawZero(u) {
  if (!(u.scales.y.min < 0 && u.scales.y.max > 0)) return;
  const y = u.valToPos(0, "y", true);
  onPaper(u, (paper, ratio) => stroke(paper, [[u.bbox.left, y], [u.bbox.left + u.bbox.width, y]], colour("--muted"), ratio, []));
}

// The strip above a plot, which holds the names of marks, so that no name covers a line of the chart. The lowest row is 0.
export class Strip {
  #taken = []; // [left, right, lowest row, highest row]

  // Args: left and right, its ends in pixels.
  constructor(rows, left, right) {
    Object.assign(this, { rows, left, right });
  }

  // Take room for a name beside the mark at x, and return {row, from, words}; null if there is none. A mark's line goes
  // down from its name, and crosses no other name. Args: texts, the longest first, each {words, width}.
  take(x, texts) {
    for (const { words, width } of texts) {
      for (const from of [x, x - width]) {
        if (from < this.left || from + width > this.right) continue;
        for (let row = 0; row < this.rows; row++) {
          const boxes = [[from, from + width, row, row], [x - 1, x + 1, 0, row]];
          if (!boxes.every((box) => this.#isFree(box))) continue;
          this.#taken.push(...boxes);
          return { row, from, words };
        }
      }
    }
    return null;
  }

  #isFree([left, right, low, high]) {
    return this.#taken.every((other) => right < other[0] || left > other[1] || high < other[2] || low > other[3]);
  }
}

const isMany = (marks, width) => marks > width / LEAST_ROOM;

// Return how many pixels are needed above a plot: a strip with the names of marks and the numbers of annotations.
export function roomAbove({ marks = [] }, annotations, [from, to], { width, height }) {
  const changes = marks.filter(({ at }) => at >= from && at <= to).length;
  const named = (isMany(changes, width) ? 1 : changes) + annotations.filter(({ start, end }) => (end ?? start) >= from && start <= to).length;
  return PLAIN + ROW * Math.min(named, height > 250 ? 3 : 2);
}

// Draw thresholds. Their names stand right of the plot, as those of lines do.
export function drawLevels(u, levels) {
  const { left, width } = u.bbox;
  onPaper(u, (paper, ratio) => {
    for (const { value } of levels.filter((level) => isWithin(u, level.value))) {
      const y = u.valToPos(value, "y", true);
      stroke(paper, [[left, y], [left + width, y]], colour("--bad"), ratio, [2 * ratio, 4 * ratio]);
    }
  });
}

const isWithin = (u, value) => value >= u.scales.y.min && value <= u.scales.y.max;

// Draw annotations, then a vertical line for every change of an alert, with their names in a strip above the plot. If there
// are so many changes that the lines would hide the counts, draw short ticks there instead. Rules that fire are named first,
// then the newest changes. A name without room is shortened or left out; the table and the text for the pointed-at point always name every change.
export function drawMarks(u, marks, annotations) {
  onPaper(u, (paper, ratio, font) => {
    const { left, top, width, height } = u.bbox;
    const strip = new Strip(Math.floor((top / ratio - PLAIN) / ROW), left, u.ctx.canvas.width);
    const base = (row) => top - (5 + ROW * row) * ratio;
    drawAnnotations(u, annotations, paper, ratio, (x, number) => {
      paper.font = `600 ${font}`;
      const place = strip.take(x, [{ words: String(number), width: paper.measureText(number).width + 3 * ratio }]);
      if (place) text(paper, place.words, place.from + 2 * ratio, base(place.row), colour("--ink"), paper.font);
    });
    const shown = marks.filter(({ at }) => at >= u.scales.x.min && at <= u.scales.x.max).map((mark) => ({ ...mark, x: u.valToPos(mark.at, "x", true) }));
    paper.font = font;
    const wide = (words) => ({ words, width: paper.measureText(words).width + 8 * ratio });
    const draw = ({ x, kind }, from, to) => stroke(paper, [[x, from], [x, to]], colour(INK[kind] ?? "--muted"), ratio, (DASH[kind] ?? []).map((part) => part * ratio));
    if (isMany(shown.length, width / ratio)) {
      const place = strip.take(left, [wide(`${shown.length} changes of alerts`)]);
      if (place) text(paper, place.words, left, base(place.row), colour("--muted"), font);
      return shown.forEach((mark) => draw(mark, top - 4 * ratio, top));
    }
    const firing = ({ kind }) => (kind === "firing" ? 0 : 1);
    for (const mark of shown.toReversed().sort((one, other) => firing(one) - firing(other))) {
      const { x, name, kind } = mark;
      const place = strip.take(x, [wide(`${name} ${kind}`), wide(name)]);
      draw(mark, place ? base(place.row) - 9 * ratio : top, top + height);
      if (place) text(paper, place.words, place.from + 5 * ratio, base(place.row), colour(INK[kind] ?? "--muted"), font);
    }
    return undefined;
  });
}

// Return the marks (changes of alerts' states) that are at most REACH pixels left or right of the pointer.
export function marksUnder(u, marks) {
  const { left } = u.cursor;
  if (left === undefined || left < 0) return [];
  return marks.filter(({ at }) => Math.abs(u.valToPos(at, "x") - left) <= REACH);
}

// Draw annotations: a line at an instant or a shade over a length of time. Args: write(x, number), writes above the plot
// the number that the list below has.
function drawAnnotations(u, annotations, paper, ratio, write) {
  const { min, max } = u.scales.x;
  const { left, top, width, height } = u.bbox;
  const pixel = (at) => Math.min(Math.max(u.valToPos(at, "x", true), left), left + width);
  for (const { start, end, number } of annotations.filter((one) => (one.end ?? one.start) >= min && one.start <= max)) {
    const [from, to] = [pixel(start), pixel(end ?? start)];
    paper.fillStyle = colour("--band-quiet");
    if (end !== null) paper.fillRect(from, top, to - from, height);
    stroke(paper, [[from, top], [from, top + height]], colour("--muted"), ratio, [ratio, 3 * ratio]);
    write(from, number);
  }
}

// Return the annotations at the pointer: an instant at most REACH pixels away, or a length of time around it.
export function annotationsUnder(u, annotations) {
  const { left } = u.cursor;
  if (left === undefined || left < 0) return [];
  const at = (instant) => u.valToPos(instant, "x");
  return annotations.filter(({ start, end }) => at(start) - REACH <= left && left <= at(end ?? start) + REACH);
}

// Return how many pixels the names of lines and thresholds need right of a plot. Args: lines, those with names.
export function roomBeside(lines, levels, width) {
  const paper = document.createElement("canvas").getContext("2d");
  paper.font = nameFont(1);
  const wide = (words) => paper.measureText(words ?? "").width + 12;
  const names = lines.map(({ name }) => wide(name));
  return Math.max(lines.length ? 74 : 32, ...names, ...levels.map((level) => wide(levelName(level, paper, width, 1))));
}

// Return a threshold's name; in a chart where it would take much of the width, without that of its rule.
const levelName = ({ name, short }, paper, width, ratio) => (paper.measureText(name).width > Math.min(width / 4, 160 * ratio) ? short : name);

// Write the names of lines at their right ends, and those of thresholds. They are moved down so that they do not overlap;
// a threshold's name that finds no room beside the plot is left out.
export function drawNames(u, lines, levels) {
  onPaper(u, (paper, ratio, font) => {
    paper.font = font;
    const ends = lines
      .map((line) => ({ words: line.name, ink: inkOf(line), value: line.value.findLast((value) => value !== null) }))
      .filter(({ words, value }) => words && value !== undefined);
    const thresholds = levels.filter((level) => isWithin(u, level.value))
      .map((level) => ({ words: levelName(level, paper, u.width * ratio, ratio), ink: colour("--bad"), value: level.value, spare: true }));
    const placed = [...ends, ...thresholds].map((end) => ({ ...end, y: u.valToPos(end.value, "y", true) })).sort((one, other) => one.y - other.y);
    let free = -Infinity;
    for (const { words, ink, y, spare } of placed) {
      const place = Math.max(y, free);
      if (spare && place > u.bbox.top + u.bbox.height) continue;
      free = place + 15 * ratio;
      text(paper, words, u.bbox.left + u.bbox.width + 6 * ratio, place + 4 * ratio, ink, font);
    }
  });
}

function onPaper(u, draw) {
  const ratio = window.devicePixelRatio || 1;
  u.ctx.save();
  draw(u.ctx, ratio, nameFont(ratio));
  u.ctx.restore();
}

const nameFont = (ratio) => `${11.5 * ratio}px ${getComputedStyle(document.body).fontFamily}`;

function stroke(paper, points, ink, width, dash) {
  paper.beginPath();
  points.forEach(([x, y]) => paper.lineTo(x, y));
  paper.setLineDash(dash);
  Object.assign(paper, { strokeStyle: ink, lineWidth: width });
  paper.stroke();
}

function text(paper, words, x, y, ink, font) {
  Object.assign(paper, { font, fillStyle: ink, textAlign: "left", textBaseline: "alphabetic" });
  paper.fillText(words, x, y);
}
