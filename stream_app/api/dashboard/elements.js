// Elements of the page, made by script: no markup in strings, so nothing can be injected.

export const at = (id) => document.getElementById(id);

// make("p", { className: "muted" }, "text", another): properties, attributes with a dash or "role", children.
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

export const bold = (text) => make("b", {}, text);

export function facts(host, entries) {
  host.replaceChildren(...entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// Set text only where it changed: a live region would otherwise be read again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
