// The newest points of a chart as a table, for those who do not look at charts.

import { point } from "./charts.js";

const ROWS = 60;

export function showTable(host, series, binSeconds, stepped) {
  const details = host.closest("details");
  const draw = () => host.replaceChildren(table(series, binSeconds, stepped));
  details.ontoggle = () => { if (details.open) draw(); };
  if (details.open) draw();
}

function table(series, binSeconds, stepped) {
  const last = series.value.length - 1;
  const rows = Array.from({ length: Math.min(ROWS, last + 1) }, (_, back) => point(series, last - back, { stepped, binSeconds }));
  const caption = `The newest ${rows.length} of ${series.value.length} points, in UTC`;
  return grid(caption, ["When", "Count", "Standard error", "At least", "At most"],
    rows.map((row) => [row.when, row.value, row.stderr, row.lower, row.upper]));
}

export function grid(caption, heads, rows) {
  const make = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const line = (name, cells) => {
    const tr = document.createElement("tr");
    tr.append(...cells.map((cell) => make(name, cell)));
    return tr;
  };
  const head = document.createElement("thead");
  head.append(line("th", heads));
  head.querySelectorAll("th").forEach((cell) => { cell.scope = "col"; });
  const body = document.createElement("tbody");
  body.append(...rows.map((cells) => line("td", cells)));
  const whole = document.createElement("table");
  whole.append(make("caption", caption), head, body);
  return whole;
}
