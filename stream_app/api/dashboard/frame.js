// Two parts that all pages have: the button for the theme, and the state of the connection.

import { at, say } from "./elements.js";

const SAID = { live: "Connected", connecting: "Reconnecting", lost: "Disconnected" };

export function setConnection(state) {
  at("connection").dataset.state = state;
  say(at("connection"), SAID[state]);
}

// Return whether the page hears of releases.
export const isConnected = () => at("connection").dataset.state === "live";

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

// Switch the theme when its button is clicked. Then call ``changed``, because charts read the theme's colours.
export function watchTheme(changed) {
  const tell = () => {
    at("theme")?.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    changed();
  };
  at("theme")?.addEventListener("click", () => { // a page in a frame has no button
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
    tell();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
