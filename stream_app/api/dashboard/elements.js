// Makes elements of the page. No text is parsed as HTML, so names of streams and keys cannot inject any.

export const at = (id) => document.getElementById(id);

// Return a new element. Args: properties; names with a dash, "role" and "for" are set as attributes; then the
// children, elements or texts. Example: make("p", { className: "muted" }, "text", another).
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "for") element.setAttribute(key, value);
    else if (key === "dataset") Object.assign(element.dataset, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

// Return a button "?" and the text that it shows and hides. The button is there only with a text. Args: label, what the text is about.
export function explained(label, ...children) {
  const box = make("div", { className: "help", hidden: true }, ...children);
  const button = make("button", { type: "button", className: "ask", "aria-label": label, "aria-expanded": "false" }, "?");
  const show = (open) => {
    box.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(box.hidden));
  const check = () => { button.hidden = !box.textContent.trim(); };
  check();
  return { button, box, check };
}

export const bold = (text) => make("b", {}, text);

// Show a number in large digits. A long one is written smaller.
export function showNumber(host, text) {
  host.textContent = text;
  host.style.setProperty("--letters", String(text.length));
}

// Return the words for an interval. Args: its ends, as texts.
export const inBetween = ([lower, upper]) => [bold(lower), " to ", bold(upper)];

// Show names and values as a list of definitions.
export function facts(host, entries) {
  host.replaceChildren(...entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// Keep the box that a <details> opens within the window, also if the window is resized. The style sheet places the box.
export function keepInWindow(details, box) {
  const place = () => {
    box.style.translate = "";
    const { left, right } = box.getBoundingClientRect();
    const [first, last] = [8, document.documentElement.clientWidth - 8];
    const shift = Math.max(Math.min(last - right, 0), first - left);
    if (details.open && shift) box.style.translate = `${shift}px`;
  };
  details.addEventListener("toggle", place);
  window.addEventListener("resize", place);
}

// Set an element's text if it differs. Setting an equal text would make screen readers read it again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
