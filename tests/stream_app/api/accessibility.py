"""What a page is to readers without a mouse or without sight: its faults, and the stops of the Tab key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

AXE = Path(__file__).parents[2] / "vendor" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical", "moderate")
# The rules whose outcome depends on colours and on the size of the window.
OF_LOOKS = ("color-contrast", "scrollable-region-focusable", "target-size", "link-in-text-block")


def faults(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Return the serious faults that axe-core finds, one line for each. Args: rules; none: all."""
    page.evaluate(AXE.read_text() + "; 0")
    only = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    found: dict[str, Any] = page.evaluate(
        "options => axe.run(document, options)", {"resultTypes": ["violations"], **only}
    )
    assert rules or len(found["passes"]) > 10
    return [
        f"{fault['impact']} {fault['id']}: {node['html'][:160]} | {node['failureSummary'][:300]}"
        for fault in found["violations"]
        if fault["impact"] in GRAVE
        for node in fault["nodes"][:3]
    ]


# Notes every element that gets the focus: its name, whether the focus is seen, whether something covers it.
# Also returns what the Tab key should reach: visible elements, and of a group of radio buttons one.
_NOTES = """() => {
  const wanted = 'a[href], button:enabled, input:enabled, select:enabled, summary, [tabindex="0"]';
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest('.skip');
  const name = (one) => {
    const field = one.name ? `${one.name}=${one.value}` : null;
    const words = one.getAttribute("aria-label") ?? field ?? one.textContent;
    return ((one.id && `#${one.id}`) || `${one.tagName.toLowerCase()} ${words}`.trim()).slice(0, 60);
  };
  const outlined = (one) => {
    const { outlineStyle, outlineWidth } = one ? getComputedStyle(one) : { outlineStyle: 'none' };
    return outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
  };
  window.stops = [];
  document.addEventListener('focusin', ({ target }) => {
    const { left, top, width, height } = target.getBoundingClientRect();
    const from = Math.max(top, 0);
    const middle = from + Math.min(height, innerHeight - from) / 2;
    const found = document.elementFromPoint(left + width / 2, middle);
    const hosts = [target, target.closest('label'), target.nextElementSibling];
    window.stops.push({
      name: name(target),
      visible: outlined(target) || outlined(target.nextElementSibling) || outlined(target.closest('.stream')),
      uncovered: !found || found.contains(target) || hosts.some((host) => host?.contains(found)),
    });
  });
  const radios = new Set();
  return [...document.querySelectorAll(wanted)].filter(isShown).filter((one) => {
    if (one.type !== 'radio') return true;
    if (!one.checked || radios.has(one.name)) return false;
    radios.add(one.name);
    return true;
  }).map(name);
}"""


def tabbed(page: Page, key: str = "Tab") -> tuple[list[str], list[dict[str, Any]]]:
    """Press Tab through a page; return what it should reach, and its stops: name, visible, uncovered.

    Args: key, Tab or Shift+Tab. The walk begins and ends at the document.
    """
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0); document.getSelection().removeAllRanges()")
    expected: list[str] = page.evaluate(_NOTES)
    for _ in range(len(expected) + 1):  # and the link that skips
        page.keyboard.press(key)
    return expected, page.evaluate("window.stops")


# Returns the texts of live regions that change from now on, as a function of the page.
WATCH_LIVE = """() => {
  window.said = [];
  const live = '[aria-live]:not([aria-live=off]), [role=status], [role=alert]';
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      const region = (target.nodeType === 1 ? target : target.parentElement)?.closest(live);
      if (region?.checkVisibility()) window.said.push(region.textContent.trim());
    }
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
