// The bar above the panels. The reader chooses a range of time, a kind of values and a key there.

import { at, keepInWindow, make, say } from "./elements.js";
import { KeyPicker } from "./key_picker.js";
import { presets } from "./ranges.js";
import { offeredZones } from "./zone.js";

let keyPicker;

export function listenToControls(page) {
  keepInWindow(at("exact"), at("exact-form"));
  keepInWindow(at("view-help"), at("view-words"));
  at("ranges").addEventListener("change", (event) => {
    if (event.target.value !== "closer") page.choose({ preset: event.target.value, closer: null });
  });
  at("views").addEventListener("change", (event) => page.choose({ view: event.target.value }));
  at("measures").addEventListener("change", (event) => page.choose({ show: event.target.value }));
  keyPicker = new KeyPicker(page);
  for (const box of [at("exact"), at("view-help")]) box.addEventListener("keydown", (event) => event.key === "Escape" && box.open && close(box));
  at("zone-select").addEventListener("change", (event) => page.choose({ zone: event.target.value }));
  at("exact-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const { start, end } = page.times.fromForm(at("exact-from").value, at("exact-to").value);
    if (start < end) page.zoom(start, end);
    close(at("exact"));
  });
}

function close(box) {
  box.open = false;
  box.querySelector("summary").focus();
}

export function showControls(page) {
  showRanges(page);
  showZones(page);
  const first = at("views").querySelector("[value=first_published]");
  first.disabled = page.keys.length > 0;
  first.parentElement.hidden = page.neverRevised; // the best values are the first ones there
  at("view-first").hidden = page.neverRevised;
  at("revised").hidden = !page.neverRevised;
  const shown = page.neverRevised && page.view === "first_published" ? "unbiased" : page.view;
  at("views").querySelector(`[value=${shown}]`).checked = true;
  at("views").hidden = page.measure.name !== "count"; // only counts have other views
  keyPicker.show();
}

// A stream whose bins are calendar days is shown in the time zone of these days.
function showZones(page) {
  const { detail, times } = page;
  const zones = offeredZones([detail.display_timezone, times.zone]);
  at("zone-picker").hidden = detail.timezone !== null || zones.length < 2;
  if (at("zone-select").dataset.zones !== String(zones)) {
    at("zone-select").dataset.zones = String(zones);
    at("zone-select").replaceChildren(...zones.map((zone) => new Option(zone, zone)));
  }
  at("zone-select").value = times.zone;
  const hasOtherDays = times.days && detail.released_until !== null && !page.hasWholeDays(page.whole());
  say(at("utc-days"), hasOtherDays ? `Days and weeks on charts are those of UTC, because days of ${times.zone} begin inside a bin.` : "");
}

function showRanges(page) {
  const whole = page.detail.released_until ? page.whole() : null;
  const offered = (whole ? presets(whole, page.bins.length) : [{ name: "all" }]).map(({ name }) => [name, name === "all" ? "All" : name]);
  const range = whole ? page.range() : null;
  if (page.closer && range) offered.push(["closer", page.times.period(range.start, range.end)]);
  const chosen = page.closer ? "closer" : offered.some(([name]) => name === page.preset) ? page.preset : "all";
  const host = at("ranges");
  const signature = JSON.stringify([offered, chosen, page.times.zone]);
  host.hidden = offered.length < 2; // there is nothing to choose
  if (host.dataset.signature === signature) return;
  host.dataset.signature = signature;
  host.querySelectorAll("label").forEach((label) => label.remove());
  for (const [value, text] of offered) {
    host.append(make("label", {}, make("input", { type: "radio", name: "range", value, checked: value === chosen }), make("span", {}, text)));
  }
  if (range && !at("exact").open) showExact(page.times, range);
}

function showExact(times, range) {
  const filled = times.toForm(range);
  ["from", "to"].forEach((end, i) => {
    Object.assign(at(`exact-${end}`), { type: times.form.type, value: filled[i] });
    at(`exact-${end}-label`).textContent = times.form[end];
  });
}
