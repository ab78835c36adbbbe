// Makes elements of the page by script. No string is parsed as markup, so nothing can be injected.

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

// Set text only if it changed, because screen readers read a live region again when it is set.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
