// Draws four things over a chart: thresholds, changes of alerts, annotations and the names of lines.

import { colour } from "./frame.js";

const LEAST_ROOM = 24; // pixels per change; with less room, ticks replace the lines
const ROWS = 3; // rows of names, at the top and at the bottom
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

// The room for names in a chart: a name covers no line of the chart and no other name, where there is such a place.
export class Room {
  #taken = [];

  constructor(u) {
    this.u = u;
  }

  // Take the first place that is free, and return it; null if each would cover another name. Boxes are in pixels.
  // Args: places, each with its box [left, right, top, bottom]; a spare one is taken only if it covers no line either.
  take(places) {
    const open = places.filter(({ box: [left, right, top, bottom] }) => this.#taken.every((other) => right < other[0] || left > other[1] || bottom < other[2] || top > other[3]));
    const found = open.find(({ box }) => !hasLine(this.u, ...box)) ?? open.find(({ spare }) => !spare) ?? null;
    if (found) this.#taken.push(found.box);
    return found;
  }
}

// Return whether a line of the chart runs through a box.
function hasLine(u, left, right, top, bottom) {
  const [from, to] = [left, right].map((x) => u.posToVal(x, "x", true));
  const [times, ...columns] = u.data;
  const lines = columns.filter((_, i) => i % 3 === 0); // their intervals are the other columns
  return times.some((at, i) => i > 0 && at >= from && times[i - 1] <= to && lines.some((line) => {
    if (line[i - 1] === null || line[i] === null) return false;
    const ends = [line[i - 1], line[i]].map((value) => u.valToPos(value, "y", true));
    return Math.max(...ends) >= top && Math.min(...ends) <= bottom;
  }));
}

// Draw thresholds with their names, at one of their ends, above or below.
export function drawLevels(u, levels, room) {
  const { left, width } = u.bbox;
  onPaper(u, (paper, ratio, font) => {
    paper.font = font;
    for (const { value, name } of levels.slice().sort((one, other) => other.value - one.value)) {
      if (value < u.scales.y.min || value > u.scales.y.max) continue;
      const y = u.valToPos(value, "y", true);
      stroke(paper, [[left, y], [left + width, y]], colour("--bad"), ratio, [2 * ratio, 4 * ratio]);
      const long = paper.measureText(name).width;
      const places = [y - 5 * ratio, y + 13 * ratio].flatMap((base) => [left + 6 * ratio, left + width - long - 6 * ratio]
        .map((x) => ({ x, base, box: [x, x + long, base - 10 * ratio, base + 3 * ratio] })));
      const place = room.take(places);
      if (place) text(paper, name, place.x, place.base, colour("--bad"), font);
    }
  });
}

// Draw a vertical line for every change of an alert, and write its name if there is room. If there are so many
// changes that the lines would hide the counts, draw short ticks at the top instead. The table and the text for
// the pointed-at point always name every change.
export function drawMarks(u, marks, room) {
  onPaper(u, (paper, ratio, font) => {
    const shown = marks.filter(({ at }) => at >= u.scales.x.min && at <= u.scales.x.max).map((mark) => ({ ...mark, x: u.valToPos(mark.at, "x", true) }));
    const many = shown.length > u.bbox.width / ratio / LEAST_ROOM;
    const [top, bottom] = [u.bbox.top, u.bbox.top + (many ? 9 * ratio : u.bbox.height)];
    for (const { x, kind } of shown) stroke(paper, [[x, top], [x, bottom]], colour(INK[kind] ?? "--muted"), ratio, (DASH[kind] ?? []).map((part) => part * ratio));
    if (many) return text(paper, `${shown.length} changes of alerts`, u.bbox.left + 6 * ratio, top + 22 * ratio, colour("--muted"), font);
    const heights = Array.from({ length: ROWS }, (_, row) => 15 * row * ratio);
    const rows = [...heights.map((down) => top + 10 * ratio + down), ...heights.map((up) => bottom - 20 * ratio - up)];
    paper.font = font;
    for (const { x, name, kind } of shown.toReversed()) {
      const words = `${name} ${kind}`;
      const width = paper.measureText(words).width + 10 * ratio;
      const after = x + width < u.bbox.left + u.bbox.width;
      const [from, to] = after ? [x, x + width] : [x - width, x];
      const place = from < u.bbox.left ? null : room.take(rows.map((base, row) => ({ base, spare: row >= ROWS, box: [from, to, base - 10 * ratio, base + 3 * ratio] })));
      if (place) text(paper, words, x + (after ? 5 : -5) * ratio, place.base, colour(INK[kind] ?? "--muted"), font, after ? "left" : "right");
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

// Draw annotations: a line at an instant or a shade over a length of time, with the number that the list below has.
export function drawAnnotations(u, annotations) {
  const { min, max } = u.scales.x;
  const within = annotations.filter(({ start, end }) => (end ?? start) >= min && start <= max);
  if (!within.length) return;
  onPaper(u, (paper, ratio, font) => {
    const { left, top, width, height } = u.bbox;
    const pixel = (at) => Math.min(Math.max(u.valToPos(at, "x", true), left), left + width);
    for (const { start, end, number } of within) {
      const [from, to] = [pixel(start), pixel(end ?? start)];
      paper.fillStyle = colour("--band-quiet");
      if (end !== null) paper.fillRect(from, top, to - from, height);
      stroke(paper, [[from, top], [from, top + height]], colour("--muted"), ratio, [ratio, 3 * ratio]);
      const x = Math.min(from + 4 * ratio, left + width - 14 * ratio);
      text(paper, String(number), x, top + height - 6 * ratio, colour("--ink"), `600 ${font}`);
    }
  });
}

// Return the annotations at the pointer: an instant at most REACH pixels away, or a length of time around it.
export function annotationsUnder(u, annotations) {
  const { left } = u.cursor;
  if (left === undefined || left < 0) return [];
  const at = (instant) => u.valToPos(instant, "x");
  return annotations.filter(({ start, end }) => at(start) - REACH <= left && left <= at(end ?? start) + REACH);
}

// Return how many pixels the names of lines need at the right of a chart.
export function roomForNames(lines) {
  const paper = document.createElement("canvas").getContext("2d");
  paper.font = nameFont(1);
  return Math.max(74, ...lines.map(({ name }) => paper.measureText(name ?? "").width + 12));
}

// Write each line's name at its right end. Names are moved down so that they do not overlap.
export function drawNames(u, lines) {
  onPaper(u, (paper, ratio, font) => {
    const ends = lines
      .map((line) => ({ line, value: line.value.findLast((value) => value !== null) }))
      .filter(({ line, value }) => line.name && value !== undefined)
      .map(({ line, value }) => ({ line, y: u.valToPos(value, "y", true) }))
      .sort((one, other) => one.y - other.y);
    let free = -Infinity;
    for (const { line, y } of ends) {
      const place = Math.max(y, free);
      free = place + 15 * ratio;
      text(paper, line.name, u.bbox.left + u.bbox.width + 6 * ratio, place + 4 * ratio, inkOf(line), font);
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

function text(paper, words, x, y, ink, font, align = "left") {
  const around = { strokeStyle: colour("--card"), lineWidth: 4 * (window.devicePixelRatio || 1), lineJoin: "round" };
  Object.assign(paper, { font, fillStyle: ink, textAlign: align, textBaseline: "alphabetic", ...around });
  paper.setLineDash([]);
  paper.strokeText(words, x, y);
  paper.fillText(words, x, y);
}
