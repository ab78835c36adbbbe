// The page /boards without a name: the reader chooses panels. The address holds the board, so it can be shared; nothing is
// stored in the service.

import { get } from "../api.js";
import { boardOf, configurationOf, describe } from "./address.js";
import { SHOWS } from "./slots.js";
import { at, make, say } from "../elements.js";
import { setConnection } from "../frame.js";

// Let the reader choose. Args: first, the board of the address; show(board), called after every choice.
export async function edit(first, show) {
  let board = first;
  const { streams } = await get("/v1/streams");
  setConnection("live");
  at("editor").hidden = false;
  at("editor").open = !board.panels.length;
  say(at("empty"), board.unreadable ? "The address of this page holds no board that can be read. It may have been cut off: ask for it again, or choose panels here." : "No panel is chosen yet.");
  at("choose-show").append(...SHOWS.map(([name, title]) => new Option(title, name)));
  at("choose-streams").append(...streams.map(({ stream, title }) => make("label", { className: "check" },
    make("input", { type: "checkbox", name: "stream", value: stream }), make("span", {}, title))));
  at("choose-title").value = board.title;

  const change = (changed) => {
    board = boardOf({ ...board, ...changed });
    describe(board);
    list();
    show(board);
  };
  const list = () => {
    at("chosen").replaceChildren(...board.panels.map((panel, i) => make("li", {},
      make("span", {}, `${SHOWS.find(([name]) => name === panel.show)?.[1] ?? panel.show}: ${panel.streams.join(", ")}`),
      button("Up", `Move panel ${i + 1} up`, i === 0, () => change({ panels: board.panels.with(i - 1, panel).with(i, board.panels[i - 1]) })),
      button("Remove", `Remove panel ${i + 1}`, false, () => change({ panels: board.panels.toSpliced(i, 1) })))));
    at("configuration").value = board.panels.length ? configurationOf(board) : "";
    at("as-configuration").hidden = !board.panels.length;
  };
  at("choose").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = at("choose-key").value.trim();
    const chosen = [...at("choose-streams").querySelectorAll(":checked")].map(({ value }) => (key ? `${value}/${key}` : value));
    say(at("choose-note"), chosen.length ? "" : "Choose at least one stream.");
    if (chosen.length) change({ panels: [...board.panels, { show: at("choose-show").value, streams: chosen, measure: at("choose-measure").value }] });
  });
  at("choose-title").addEventListener("change", () => change({ title: at("choose-title").value.trim() }));
  at("copy").addEventListener("click", copy);
  list();
  show(board);
}

async function copy() {
  at("configuration").select();
  try {
    await navigator.clipboard.writeText(at("configuration").value);
    say(at("copied"), "Copied. Paste it into the configuration file; it is used from the next start of the API.");
  } catch {
    say(at("copied"), "This browser does not allow copying here. The text is selected: copy it with the keyboard.");
  }
}

function button(text, label, disabled, act) {
  const made = make("button", { type: "button", disabled, "aria-label": label }, text);
  made.addEventListener("click", act);
  return made;
}
