// Makes tables of a chart's numbers, for readers who cannot use charts.

import { make } from "./elements.js";

export function grid(caption, heads, rows) {
  const line = (name, cells, properties = {}) => make("tr", {}, ...cells.map((cell) => make(name, properties, String(cell))));
  return make("table", {},
    make("caption", {}, caption),
    make("thead", {}, line("th", heads, { scope: "col" })),
    make("tbody", {}, ...rows.map((cells) => line("td", cells))));
}

// Return a table of a chart's newest points: a count and an interval for each line. If there is only one line, the
// table has its standard error too.
export function pictureTable(chart, most = 60) {
  const { picture } = chart;
  const last = picture.end.length - 1;
  const points = Array.from({ length: Math.min(most, last + 1) }, (_, back) => last - back);
  const named = (name, head) => (name ? `${name}: ${head.toLowerCase()}` : head);
  const heads = [chart.options.across ?? `When (${chart.options.times().scale})`, ...picture.lines.flatMap(({ name }) => [named(name, chart.counted), named(name, "At least"), named(name, "At most")])];
  if (picture.stderr) heads.push("Standard error");
  if (picture.nodes) heads.push("Noisy counts used");
  if (picture.marks?.length) heads.push("Alerts");
  const rows = points.map((at) => {
    const said = chart.point(at);
    const cells = [said.when, ...said.lines.flatMap(({ value, lower, upper }) => [value, lower ?? "", upper ?? ""])];
    if (picture.stderr) cells.push(chart.numbers.value(picture.stderr[at], [picture.lines[0].lower[at], picture.lines[0].upper[at]]));
    if (picture.nodes) cells.push(said.nodes);
    if (picture.marks?.length) cells.push(said.changes.map(({ words }) => words).join("; "));
    return cells;
  });
  return grid(`The newest ${rows.length} of ${last + 1} points`, heads, rows);
}
