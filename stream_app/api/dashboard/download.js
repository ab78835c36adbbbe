// Saving what a panel shows: its numbers as CSV or JSON, its picture as PNG. Nothing is sent anywhere.

import { make } from "./elements.js";
import { colour } from "./frame.js";

export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function saveCsv(name, heads, rows) {
  const cell = (value) => (/[",\n]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  const text = [heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
  save(`${name}.csv`, new Blob([`${text}\r\n`], { type: "text/csv" }));
}

export function saveJson(name, answer) {
  save(`${name}.json`, new Blob([`${JSON.stringify(answer, null, 1)}\n`], { type: "application/json" }));
}

// Args: canvases, laid out in columns as wide as the first; lines of text above them.
export function savePng(name, [title, ...lines], canvases, labels = []) {
  const ratio = window.devicePixelRatio || 1;
  const across = labels.length ? 3 : 1; // small multiples side by side
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
  // Start the download at once, not in a callback: browsers allow it only shortly after the click.
  const bytes = Uint8Array.from(atob(paper.toDataURL("image/png").split(",")[1]), (letter) => letter.charCodeAt(0));
  save(`${name}.png`, new Blob([bytes], { type: "image/png" }));
}
