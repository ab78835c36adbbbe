// The panel that says what is protected. All of its sentences come from the service.

import { at, facts, make, say } from "./elements.js";
import { grid } from "./tables.js";
import { seconds } from "./times.js";

// Args: times, of this page's stream. They are also used for other streams in the ledger of the same source.
export function showPrivacy(privacy, times) {
  // The page leads with the unit of this stream: other streams over its source may protect something smaller.
  const { promise, own_promise: own, whole_user: wholeUser, total } = privacy;
  at("promise").replaceChildren(...withPowers(own || promise));
  at("promise-line").hidden = false;
  at("protects").replaceChildren(...(privacy.private ? ["No reader can be sure whether ", make("b", {}, protectedUnit(privacy)), " was counted"] : ["Protects nobody"]));
  const together = own ? `All streams over this source together: ${promise.replace(/^./, (letter) => letter.toLowerCase())}` : "";
  const next = total?.spent ? "" : privacy.next_epoch; // of the promise that the page leads with
  const others = own ? [next, together, privacy.also] : [privacy.also, next];
  at("also").replaceChildren(...withPowers([wholeUser, ...others, total?.sentence].filter(Boolean).join(" ")));
  at("spent").hidden = !total?.spent;
  at("spent").textContent = total?.spent ? total.sentence : "";
  showList(at("protected"), privacy.protected);
  showList(at("not-protected"), privacy.not_protected);
  const { max_odds_factor: factor, composed, source_epsilon: summed, source_delta: summedDelta } = privacy;
  const isAlone = privacy.epsilon === summed && privacy.delta === summedDelta;
  facts(at("privacy-numbers"), [
    ["Epsilon of this stream", withDelta(privacy.epsilon, privacy.delta)],
    ...(isAlone ? [] : [["All streams over this source together", withDelta(summed, summedDelta)]]),
    ...(composed.epsilon === summed ? [] : [["The same, for those who accept a delta", withDelta(composed.epsilon, composed.delta)]]),
    ...(privacy.source_delta === null ? [oddsWords(factor)] : []),
    ...(total ? [["Total of all epochs", withDelta(total.epsilon, total.delta)], ["Epochs left", total.epochs_left ?? "any number"]] : []),
    ["Unit of this stream", unitWords(privacy)],
    ...neighbourWords(privacy),
  ]);
  at("ledger").replaceChildren(
    grid(`Source: ${privacy.source}. Periods in ${times.zone}.`, ["Stream", "Epoch", "From", "To", "Epsilon", "Unit"],
      privacy.ledger.map((row) => [row.stream, row.epoch, times.from(seconds(row.start), null), times.until(seconds(row.end), null), withDelta(row.epsilon, row.delta), row.unit])),
  );
}

function withDelta(epsilon, delta) {
  return delta === null ? epsilon : `${epsilon} (delta ${delta})`;
}

function oddsWords(factor) {
  return ["Odds change at most", factor === null ? "without limit" : `× ${factor < 100 ? factor.toFixed(2) : Math.round(factor).toLocaleString("en")}`];
}

// Return the nodes of a sentence in which "e^0.5" is shown as a power.
function withPowers(text) {
  return text.split(/(?<=\be)\^([\d/.]*\d)/).map((part, i) => (i % 2 ? make("sup", {}, part) : part));
}

const protectedUnit = ({ unit, per }) => (per === null ? `one ${unit}` : `one user within one ${per}`);

function unitWords({ unit, per, max_events: most, max_keys: keys, max_per_key: ofKey }) {
  if (most === null) return `one ${unit}`;
  const inKeys = keys === null ? "" : `, at most ${ofKey.toLocaleString("en")} in ${keys === 1 ? "1 key" : `each of at most ${keys.toLocaleString("en")} keys`}`;
  const counted = `at most ${most.toLocaleString("en")} ${most === 1 ? "event counts" : "events count"}`;
  if (per !== null) return `one user within one ${per}, of whom ${counted}${inKeys}`;
  return `one ${unit}, of whom ${counted} in an epoch${inKeys}`;
}

// Return the two logs that the promise compares. Other streams over the source may protect something else.
function neighbourWords({ neighbouring, own_neighbouring: own }) {
  if (own === neighbouring) return [["The promise compares", own]];
  return [["For this stream, the promise compares", own], ["For the sum, it compares", neighbouring]];
}

function showList(host, lines) {
  host.replaceChildren(...lines.map((line) => make("li", {}, line)));
}
