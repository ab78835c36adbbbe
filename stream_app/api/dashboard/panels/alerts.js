// The panel of alert rules. It lists each rule's state, since when it is in this state, and its changes within the
// chosen range.

import { make } from "../elements.js";
import { Panel } from "../panel.js";
import { isComplete } from "../stream_state.js";
import { grid } from "../tables.js";
import { amount, count, error, percent, sentence } from "../words.js";

export class Alerts extends Panel {
  constructor(page) {
    super(page, "alerts", "Alerts");
    this.list = make("ul", { className: "alerts" });
    this.body.append(this.list);
    this.saving.lastElementChild.remove(); // remove the PNG button, because a list has no picture
  }

  static applies(page) {
    return page.alerts.length > 0;
  }

  async ask(page) {
    const { start, end } = page.range();
    const changes = page.transitions.filter(({ at }) => at >= start && at <= end).toReversed();
    const kept = page.transitions.length < page.transitionsKept ? "" : `Only the last ${count(page.transitionsKept)} changes are kept and marked on the charts.`;
    const sure = [...new Set(page.alerts.map(({ confidence }) => percent(confidence)))];
    const note = `A rule fires when its condition holds with ${sure.length > 1 ? "its" : sure[0]} confidence. ${kept}`;
    return { alerts: page.alerts, changes, seq: page.seq, private: page.detail.private, note, isEqual: sure.length === 1 };
  }

  show({ alerts }) {
    this.list.replaceChildren(...alerts.map((one) => make("li", {},
      make("span", { className: "chip", dataset: { state: one.phase } }, one.phase),
      make("b", {}, one.rule),
      make("code", {}, one.condition),
      make("span", { className: "muted" }, this.#brief(one)))));
    // A range may end long before: rules are about the newest values.
    this.heading.textContent = `Alerts, ${this.page.times.onPage(this.page.times.until(this.page.whole().end))}`;
  }

  // Return a rule's newest value and what a reader must know; the table below has everything.
  #brief(one) {
    const { refused, fires, summary, missing_now: missing, value_now: value, stderr_now: stderr, unit, against_now: against } = one;
    const now = missing ? `Cannot be decided: ${missing}` : value === null ? "" : estimate(value, stderr, unit, against);
    const waits = fires === null || isComplete(this.page.detail) ? "" : `Fires ${this.page.times.until(fires, null)} if it holds`;
    const refusal = refused.length ? `Last notification refused by ${refused.join(", ")}` : "";
    return [now, one.changed === null ? "" : this.#when(one), waits, refusal, summary].filter(Boolean).join(" · ");
  }

  #words(one) {
    const { confidence, refused, watched, fires, value_now: value, stderr_now: stderr, against_now: against, missing_now: missing, quiet, unit, summary } = one;
    const { times, detail } = this.page;
    const since = watched === null || one.changed !== null ? "" : ` Watched since ${times.onPage(times.until(watched))}.`;
    const now = missing ? `; it cannot be decided now: ${missing}` : value === null ? "" : `; at ${times.onPage(times.until(this.page.whole().end))} it read ${estimate(value, stderr, unit, against)}`;
    const waits = fires === null ? "" : isComplete(detail) ? " Pending when the stream ended." : ` Pending: it fires at ${times.onPage(times.until(fires, null))} if the condition holds until then.`;
    return `${this.#change(one)}${now}.${waits}${since}${this.answer.isEqual ? "" : ` Confidence: ${percent(confidence)}.`}${quiet ? ` It does not fire in ${quiet}.` : ""}${refused.length ? ` Its last notification was refused by ${refused.join(", ")}.` : ""}${summary ? ` ${summary}` : ""}`;
  }

  #change(one) {
    const { changed, value, stderr, against, unit } = one;
    if (changed === null) return "Never changed";
    const when = this.page.times.onPage(this.#when(one));
    return value === null ? when : `${when}, when it read ${estimate(value, stderr, unit, against)}`;
  }

  #when({ rule, phase, kind, since, changed }) {
    const { times, transitions } = this.page;
    if (phase !== "inactive") return `Since ${times.until(since)}`;
    const fired = kind === "resolved" ? transitions.findLast((one) => one.rule === rule && one.kind === "firing") : undefined;
    return sentence(`${fired ? `fired ${times.moment(fired.at)}; ` : ""}${kind} ${times.moment(changed)}`);
  }

  table() {
    const { alerts, changes } = this.answer;
    const rules = alerts.map((one) => [one.rule, one.phase, one.condition, this.#words(one)]);
    const changed = changes.map(({ rule, kind, at, value, stderr, against, unit, condition }) => [
      rule, kind, this.page.times.until(at), value === null ? "" : estimate(value, stderr, unit, against), condition]);
    return make("div", { className: "words" },
      grid("Rules", ["Rule", "State", "Condition", "Details"], rules),
      grid(`Changes in this range, newest first: ${count(changes.length)}`, ["Rule", "Became", `When (${this.page.times.zone})`, "Estimate", "Condition"], changed));
  }

  csv() {
    const heads = ["rule", "phase", "condition", "confidence", "since", "changed", "kind", "value", "stderr", "unit", "watched", "fires", "value_now", "stderr_now", "against_now"];
    return [heads, this.answer.alerts.map((one) => heads.map((head) => one[head]))];
  }
}

// Return an estimate with its standard error, in the unit of the condition: "4.2/h (standard error 0.3/h)". A rule
// against the past compares it with another estimate.
function estimate(value, stderr, unit, against) {
  const said = (number) => Number.isInteger(number) ? count(number) : amount(number);
  const compared = against === null ? "" : `, against ${said(against)}`;
  return stderr === null ? `${said(value)}${unit}` : `${said(value)}${unit} (standard error ${error(stderr)}${unit})${compared}`;
}
