// Alert rules over the stream: where each stands, and since when.

import { make } from "../elements.js";
import { Panel } from "../panel.js";
import { grid } from "../tables.js";
import { count, error, instant, percent } from "../words.js";

export class Alerts extends Panel {
  constructor(page) {
    super(page, "alerts", "Alerts");
    this.list = make("ul", { className: "alerts" });
    this.body.append(this.list);
    this.saving.lastElementChild.remove(); // a list has no picture
  }

  static applies(page) {
    return page.alerts.length > 0;
  }

  async ask(page) {
    return { alerts: page.alerts, seq: page.seq, private: page.detail.private };
  }

  show({ alerts }) {
    this.list.replaceChildren(...alerts.map((one) => make("li", {},
      make("span", { className: "chip", dataset: { state: one.phase } }, one.phase),
      make("b", {}, one.rule),
      make("code", {}, one.condition),
      make("span", { className: "muted" }, this.#words(one)))));
  }

  #words({ phase, kind, confidence, since, changed, value, stderr, summary }) {
    const bin = this.page.binSeconds;
    const when = phase === "inactive" ? `${kind} ${instant(changed, bin)} UTC` : `since ${instant(since, bin)} UTC`;
    const seen = value === null ? "" : `, then ${count(value)} ± ${error(stderr)} (standard error)`;
    return `${when}${seen}, confidence ${percent(confidence)}${summary ? `. ${summary}` : ""}`;
  }

  table() {
    return grid("Rules", ["Rule", "State", "Condition", "Details"], this.answer.alerts.map((one) => [one.rule, one.phase, one.condition, this.#words(one)]));
  }

  csv() {
    const heads = ["rule", "phase", "condition", "confidence", "since", "changed", "kind", "value", "stderr"];
    return [heads, this.answer.alerts.map((one) => heads.map((head) => one[head]))];
  }
}
