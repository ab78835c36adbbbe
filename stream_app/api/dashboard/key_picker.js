// The control that chooses keys: a box with check boxes, and a field that searches them. Several chosen keys are a group:
// every panel shows their events together. If the keys have several fields, each field has its own check boxes. The
// service searches the list of keys, which may be long.

import { ApiError, get, streamPath } from "./api.js";
import { at, keepInWindow, make, say } from "./elements.js";
import { chosenOf, fieldsOf, keysOf } from "./key_choice.js";

const MOST = 200; // values of a field in the box at a time; the reader finds all others by searching
const SEARCHED = 12; // more values than this have a field for searching

export class KeyPicker {
  constructor(page) {
    this.page = page;
    this.box = at("key-picker");
    this.lists = at("key-lists");
    this.found = []; // the values of each field that the box lists
    this.asked = 0; // questions to the service so far
    keepInWindow(this.box, this.box.querySelector(".key-box"));
    this.box.addEventListener("toggle", () => this.#opened());
    this.box.addEventListener("keydown", (event) => { if (event.key === "Escape") this.#close(); });
    document.addEventListener("click", (event) => { if (this.box.open && !event.composedPath().includes(this.box)) this.box.open = false; });
    at("key-search").addEventListener("input", () => this.#fill());
    at("key-search").addEventListener("keydown", (event) => { if (event.key === "Enter") this.#chooseFound(event); });
    at("key-all").addEventListener("click", () => this.#all());
    this.lists.addEventListener("change", ({ target }) => this.#chose(Number(target.dataset.field), target.value, target.checked));
  }

  // Show the page's choice in the control.
  show() {
    this.box.hidden = this.#fields().length === 0;
    say(at("key-chosen"), this.page.group() || "All");
    at("key-all").disabled = this.page.keys.length === 0;
    const chosen = this.#chosen();
    for (const one of this.lists.querySelectorAll("input")) one.checked = chosen[one.dataset.field].includes(one.value);
  }

  #fields() {
    return fieldsOf(this.page.detail.axes);
  }

  #chosen() {
    return chosenOf(this.page.detail.axes, this.page.keys);
  }

  #opened() {
    if (!this.box.open) return;
    at("key-search").hidden = this.#fields().every(({ values }) => values <= SEARCHED);
    at("key-search").value = "";
    this.#fill();
    if (!at("key-search").hidden) at("key-search").focus();
  }

  #close() {
    this.box.open = false;
    this.box.querySelector("summary").focus();
  }

  #all() {
    this.page.choose({ keys: [] });
    this.#fill();
    this.box.querySelector("summary").focus(); // this button is disabled now
  }

  // Ask for the values that the reader searches for, and list them. A later question makes this one void.
  async #fill() {
    const sought = at("key-search").value.trim();
    const asked = ++this.asked;
    try {
      const parts = await Promise.all(this.#fields().map(({ field }) =>
        get(`${streamPath(this.page.stream)}/keys/list`, { field: field || null, contains: sought, limit: MOST })));
      if (asked === this.asked) this.#list(sought.toLowerCase(), parts);
    } catch (error) {
      if (asked === this.asked) say(at("key-note"), `The keys cannot be searched: ${error instanceof ApiError ? error.message : "the service does not answer"}.`);
    }
  }

  // List values of each field, the chosen ones first. A click does not move them. Args: parts, answers of /keys/list.
  #list(sought, parts) {
    const chosen = this.#chosen().map((values) => values.filter((value) => value.toLowerCase().includes(sought)));
    this.found = parts.map(({ keys }, i) => [...new Set([...chosen[i], ...keys])]);
    const lists = this.#fields().map(({ field }, i) => {
      const is = new Set(chosen[i]);
      const listed = this.found[i].slice(0, MOST);
      return make("fieldset", {},
        make("legend", { className: field ? "" : "visually-hidden" }, field || "Keys to count together"),
        make("ul", {}, ...listed.map((value) => make("li", {}, make("label", { className: "check" },
          make("input", { type: "checkbox", value, checked: is.has(value), dataset: { field: i } }), make("span", {}, value))))));
    });
    const focused = this.lists.contains(document.activeElement);
    this.lists.replaceChildren(...lists);
    if (focused) this.lists.querySelector("input")?.focus();
    say(at("key-note"), this.#note(sought, parts));
  }

  #note(sought, parts) {
    const [found, all] = [this.found.flat().length, parts.reduce((sum, { listed }) => sum + listed, 0)];
    if (!found) return "No key has this in its name.";
    const cut = parts.find(({ next }) => next !== null);
    if (cut && sought) return `The first ${MOST} keys that have this in their names; write more of the name.`;
    if (cut) return `The first ${MOST} of ${cut.listed.toLocaleString("en")} keys; search for the others.`;
    return found < all ? `${found} of ${all.toLocaleString("en")} keys.` : "";
  }

  #chose(field, value, chosen) {
    const { axes } = this.page.detail;
    const wanted = this.#chosen();
    const others = wanted[field].filter((one) => one !== value);
    wanted[field] = chosen ? [...others, value] : others;
    this.page.choose({ keys: keysOf(axes, wanted) });
  }

  // With the Enter key, choose the only value that was found.
  async #chooseFound(event) {
    event.preventDefault();
    await this.#fill(); // the answer to the last letter may be under way
    if (this.found.flat().length !== 1) return;
    const field = this.found.findIndex((values) => values.length);
    const [value] = this.found[field];
    this.#chose(field, value, !this.#chosen()[field].includes(value));
  }
}
