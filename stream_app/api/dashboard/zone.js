// The reader's choice of a time zone. The address of a page holds it, and the browser remembers it for other pages.

const KEY = "timezone";

// Return the chosen time zone; null if the reader chose none, or one that the browser does not know.
export function chosenZone(location = window.location.href) {
  const asked = new URL(location).searchParams.get("tz") ?? remembered();
  return asked && isZone(asked) ? asked : null;
}

// Return the zone that the browser remembers. A page in a frame of another site may have no storage.
function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const rememberZone = (zone) => localStorage.setItem(KEY, zone);

// Return the time zones to offer: UTC, that of this browser, and others that are in use. Each is there once.
export function offeredZones(others) {
  return [...new Set(["UTC", new Intl.DateTimeFormat().resolvedOptions().timeZone, ...others])].filter(isZone);
}

export function isZone(name) {
  try {
    return Boolean(new Intl.DateTimeFormat("en", { timeZone: name }));
  } catch {
    return false;
  }
}
