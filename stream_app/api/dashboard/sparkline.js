// Draws a small chart without axes: a line, and a band that shows the intervals of its points.

import { colour } from "./frame.js";

// Args: value, lower and upper, arrays of equal length; breaks, places of the points after which the line breaks; scale,
// the ends {low, high} of the vertical axis. Without a scale the axis fits the values.
export function drawSparkline(canvas, { value, lower, upper }, breaks = [], scale = ownScale(value, lower, upper)) {
  const paper = paperOf(canvas);
  if (!paper) return;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const span = Math.max(scale.high - scale.low, 1e-9);
  const x = (i) => 3 + (i / Math.max(value.length - 1, 1)) * (width - 8);
  const y = (number) => height - 3 - ((number - scale.low) / span) * (height - 6);
  if (scale.low < 0 && scale.high > 0) {
    line(paper, [[3, y(0)], [width - 5, y(0)]], colour("--line"), 1);
  }
  const last = value.length - 1;
  const firsts = [0, ...breaks.map((i) => i + 1)];
  firsts.forEach((first, run) => drawRun(first, breaks[run] ?? last));
  dot(last, 2.6);

  function drawRun(from, to) {
    if (from === to) return dot(from, 1.5);
    paper.beginPath();
    for (let i = from; i <= to; i += 1) paper.lineTo(x(i), y(upper[i]));
    for (let i = to; i >= from; i -= 1) paper.lineTo(x(i), y(lower[i]));
    paper.closePath();
    paper.fillStyle = colour("--band");
    paper.fill();
    return line(paper, value.slice(from, to + 1).map((number, i) => [x(from + i), y(number)]), colour("--accent"), 1.5);
  }

  function dot(i, radius) {
    paper.beginPath();
    paper.arc(x(i), y(value[i]), radius, 0, 2 * Math.PI);
    paper.fillStyle = colour("--accent");
    paper.fill();
  }
}

// Draw a value as a bar from 0 and its interval as a whisker, on a horizontal axis. Args: one {value, interval}; scale, the
// ends {low, high} of the axis.
export function drawBar(canvas, { value, interval }, scale) {
  const paper = paperOf(canvas);
  if (!paper) return;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [middle, span] = [height / 2, Math.max(scale.high - scale.low, 1e-9)];
  const x = (number) => 2 + ((number - scale.low) / span) * (width - 4);
  paper.fillStyle = colour("--accent");
  paper.globalAlpha = 0.45;
  paper.fillRect(Math.min(x(0), x(value)), middle - 6, Math.abs(x(value) - x(0)), 12);
  paper.globalAlpha = 1;
  line(paper, interval.map((end) => [x(end), middle]), colour("--ink"), 1.5);
  for (const end of interval) line(paper, [[x(end), middle - 4], [x(end), middle + 4]], colour("--ink"), 1.5);
}

// Draw a value as a dot and its interval as a bar, on a horizontal axis. Args: one {value, interval}, or null for an
// empty axis; scale, the ends {low, high} of the axis.
export function drawInterval(canvas, one, scale) {
  const paper = paperOf(canvas);
  if (!paper) return;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [middle, span] = [height / 2, Math.max(scale.high - scale.low, 1e-9)];
  const x = (number) => 6 + ((number - scale.low) / span) * (width - 12);
  line(paper, [[3, middle], [width - 3, middle]], colour("--line"), 1);
  if (!one) return;
  const [from, to] = one.interval.map(x);
  paper.fillStyle = colour("--band");
  paper.beginPath();
  paper.roundRect(from - 3, middle - 9, to - from + 6, 18, 5);
  paper.fill();
  paper.beginPath();
  paper.arc(x(one.value), middle, 4, 0, 2 * Math.PI);
  paper.fillStyle = colour("--accent");
  paper.fill();
}

// Return an empty canvas's context, in which a unit is a pixel of the page; null while the page does not show the canvas.
export function paperOf(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height) return null;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const paper = canvas.getContext("2d");
  paper.scale(ratio, ratio);
  return paper;
}

export function ownScale(value, lower, upper) {
  return { low: Math.min(0, ...lower, ...value), high: Math.max(...upper, ...value, 1) };
}

function line(paper, points, ink, thickness) {
  paper.beginPath();
  points.forEach(([x, y]) => paper.lineTo(x, y));
  Object.assign(paper, { strokeStyle: ink, lineWidth: thickness, lineJoin: "round" });
  paper.stroke();
}
