// The control that chooses keys: a box with check boxes, and a field that searches them. Several chosen keys are a group:
// every panel shows their events together. If the keys have several fields, each field has its own check boxes.

import { at, keepInWindow, make, say } from "./elements.js";
import { chosenOf, fieldsOf, keysOf } from "./key_choice.js";

const MOST = 200; // values of a field in the box at a time; the reader finds all others by searching
const SEARCHED = 12; // more values than this have a field for searching

export class KeyPicker {
  constructor(page) {
    this.page = page;
    this.box = at("key-picker");
    this.lists = at("key-lists");
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
    at("key-search").hidden = this.#fields().every(({ values }) => values.length <= SEARCHED);
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

  // Return the values that the reader searches for, field by field.
  #found() {
    const sought = at("key-search").value.trim().toLowerCase();
    return this.#fields().map(({ values }) => (sought ? values.filter((value) => value.toLowerCase().includes(sought)) : values));
  }

  // List the values that the reader searches for, the chosen ones first. A click does not move them.
  #fill() {
    const [found, chosen] = [this.#found(), this.#chosen()];
    const lists = this.#fields().map(({ field }, i) => {
      const is = new Set(chosen[i]);
      const listed = [...found[i].filter((value) => is.has(value)), ...found[i].filter((value) => !is.has(value))].slice(0, MOST);
      return make("fieldset", {},
        make("legend", { className: field ? "" : "visually-hidden" }, field || "Keys to count together"),
        make("ul", {}, ...listed.map((value) => make("li", {}, make("label", { className: "check" },
          make("input", { type: "checkbox", value, checked: is.has(value), dataset: { field: i } }), make("span", {}, value))))));
    });
    this.lists.replaceChildren(...lists);
    say(at("key-note"), this.#note(found.flat().length, Math.max(...found.map((values) => values.length))));
  }

  #note(found, longest) {
    const all = this.#fields().flatMap(({ values }) => values).length;
    if (!found) return "No key has this in its name.";
    if (longest > MOST) return `The first ${MOST} of ${longest.toLocaleString("en")} keys; search for the others.`;
    return found < all ? `${found} of ${all.toLocaleString("en")} keys.` : "";
  }

  #chose(field, value, chosen) {
    const { axes } = this.page.detail;
    const wanted = this.#chosen();
    const others = wanted[field].filter((one) => one !== value);
    wanted[field] = this.#fields()[field].values.filter((one) => others.includes(one) || (chosen && one === value));
    this.page.choose({ keys: keysOf(axes, wanted) });
  }

  // With the Enter key, choose the only value that was found.
  #chooseFound(event) {
    event.preventDefault();
    const found = this.#found();
    const field = found.findIndex((values) => values.length);
    if (found.flat().length !== 1) return;
    this.#chose(field, found[field][0], !this.#chosen()[field].includes(found[field][0]));
  }
}
