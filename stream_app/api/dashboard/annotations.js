// Annotations: texts beside times of charts, which the operator has written. Each has a number; charts show the number,
// and a list below them the text.

import { make } from "./elements.js";
import { seconds } from "./times.js";

// Return annotations by time, each with its number and its times in seconds. Args: as the service answers them.
export function numbered(annotations = []) {
  return annotations
    .map(({ start, end, text, link }) => ({ start: seconds(start), end: end === null ? null : seconds(end), text, link }))
    .sort((one, other) => one.start - other.start)
    .map((one, i) => ({ ...one, number: i + 1 }));
}

// List annotations for readers. Args: annotations, numbered; times, which write their instants.
export function listAnnotations(host, annotations, times) {
  const said = JSON.stringify([annotations, times?.zone]);
  host.hidden = !annotations.length;
  if (host.dataset.said === said) return; // or a link that has the focus would lose it
  host.dataset.said = said;
  host.replaceChildren(...annotations.map((one) => make("li", { value: one.number },
    `${times.onPage(one.end === null ? times.moment(one.start) : times.period(one.start, one.end))}: `,
    one.link ? make("a", { href: one.link, rel: "noopener noreferrer", target: "_blank" }, one.text) : one.text)));
}
