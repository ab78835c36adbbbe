// Parts that all pages have: the button for the theme, and the state of the connection.

import { at, make, say } from "./elements.js";

const SAID = { live: "Connected", connecting: "Reconnecting", lost: "Disconnected" };

const LOST_MS = 5000; // a connection that is back sooner is not worth a word
let losing = null;
let wasLive = false;

export function setConnection(state) {
  at("connection").dataset.state = state;
  say(at("connection"), SAID[state]);
  if (state === "live") {
    wasLive = true;
    clearTimeout(losing);
    losing = null;
    document.getElementById("offline")?.remove();
  } else if (wasLive) losing ??= setTimeout(sayOffline, LOST_MS);
}

function sayOffline() {
  const words = "This page has lost its connection. It shows what it received before, and connects again by itself.";
  document.querySelector("header.bar")?.after(make("p", { className: "alarm offline", id: "offline", role: "status" }, words));
}

// Return whether the page hears of releases.
export const isConnected = () => at("connection").dataset.state === "live";

const isDark = () => document.documentElement.dataset.theme === "dark"; // theme.js sets it

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
