// Saves a panel's numbers as a CSV or JSON file, and its charts as a PNG file. Nothing leaves the browser.

import { make } from "./elements.js";
import { colour } from "./frame.js";

export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Save rows as a file for spreadsheets. A text that a spreadsheet would compute gets an apostrophe before it. Letters
// beyond ASCII need a mark at the start of the file, or Excel shows others.
export function saveCsv(name, heads, rows) {
  const safe = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? ""));
  const cell = (value) => (/[",\r\n]/.test(safe(value)) ? `"${safe(value).replaceAll('"', '""')}"` : safe(value));
  const text = [heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
  const mark = /[^\0-\x7f]/.test(text) ? "\ufeff" : "";
  save(`${name}.csv`, new Blob([`${mark}${text}\r\n`], { type: "text/csv" }));
}

export function saveJson(name, answer) {
  save(`${name}.json`, new Blob([`${JSON.stringify(answer, null, 1)}\n`], { type: "application/json" }));
}

// Save canvases as one picture, with lines of text above them. Args: labels, one text above each canvas; canvases
// with labels are in three columns.
export function savePng(name, [title, ...lines], canvases, labels = []) {
  const ratio = window.devicePixelRatio || 1;
  const across = labels.length ? 3 : 1; // columns
  const [width, height] = [canvases[0].width, canvases[0].height + (labels.length ? 22 * ratio : 0)];
  const head = (34 + 18 * lines.length) * ratio;
  const paper = make("canvas", { width: Math.max(width * across, 560 * ratio) + 32 * ratio, height: head + Math.ceil(canvases.length / across) * height + 16 * ratio });
  const ink = paper.getContext("2d");
  ink.fillStyle = colour("--card");
  ink.fillRect(0, 0, paper.width, paper.height);
  const family = getComputedStyle(document.body).fontFamily;
  const write = (text, x, y, font, shade) => {
    Object.assign(ink, { font, fillStyle: colour(shade) });
    ink.fillText(text, x, y);
  };
  write(title, 16 * ratio, 26 * ratio, `600 ${16 * ratio}px ${family}`, "--ink");
  lines.forEach((line, i) => write(line, 16 * ratio, (46 + 18 * i) * ratio, `${12.5 * ratio}px ${family}`, "--muted"));
  canvases.forEach((canvas, i) => {
    const [x, y] = [16 * ratio + (i % across) * width, head + Math.floor(i / across) * height];
    if (labels[i]) write(labels[i], x, y + 15 * ratio, `${12.5 * ratio}px ${family}`, "--ink");
    ink.drawImage(canvas, x, y + (labels.length ? 22 * ratio : 0));
  });
  // canvas.toBlob would answer later. Browsers allow a download only shortly after a click, so this line does not wait.
  const bytes = Uint8Array.from(atob(paper.toDataURL("image/png").split(",")[1]), (letter) => letter.charCodeAt(0));
  save(`${name}.png`, new Blob([bytes], { type: "image/png" }));
}
