// Loads panels: those in sight, each again at most once a second after a release, and none while the page is hidden.

export const REFRESH_MS = 1000;
const SHARE_OF_SERVER = 4; // a panel that took t seconds to load is not loaded again for 3 t seconds
const NEAR_PX = 200; // a panel this far below the window is loaded as if it were in sight

export class LoadedPanels {
  #panels = new Set();
  #inSight = new Set();
  #loading = new Set();
  #again = new Set(); // panels to load again after their current load
  #stale = new Set();
  #sight;

  // Args: canLoad(panel), whether a panel has anything to show yet; near, in pixels.
  constructor(canLoad, near = NEAR_PX) {
    this.canLoad = canLoad;
    this.#sight = new IntersectionObserver((entries) => entries.forEach((entry) => this.#seen(entry)), { rootMargin: `${near}px` });
  }

  // Add a panel whose element is on the page. It is loaded when it comes into sight.
  add(panel) {
    this.#panels.add(panel);
    this.#stale.add(panel);
    this.#sight.observe(panel.element);
  }

  remove(panel) {
    [this.#panels, this.#inSight, this.#again, this.#stale].forEach((panels) => panels.delete(panel));
    this.#sight.unobserve(panel.element);
  }

  // Mark panels as stale, because there are new releases. Args: which(panel).
  mark(which = () => true) {
    for (const panel of this.#panels) if (which(panel)) this.#stale.add(panel);
  }

  // Load a panel if it is visible. A panel has at most one request at a time. If it is loading already, it is loaded
  // once more afterwards.
  async load(panel, awaited = this.#inSight.has(panel)) {
    if (!this.#panels.has(panel) || !this.canLoad(panel)) return;
    this.#stale.add(panel);
    panel.element.setAttribute("aria-busy", "true"); // "false" again when the last requested load is done
    if (document.hidden || !awaited) return;
    if (this.#loading.has(panel)) {
      this.#again.add(panel);
      return;
    }
    const began = performance.now();
    this.#loading.add(panel);
    this.#stale.delete(panel);
    try {
      await panel.load();
      panel.element.setAttribute("aria-busy", String(this.#again.has(panel)));
    } catch {
      this.#stale.add(panel); // the service is down; the next refresh loads the panel again
      panel.sayUnanswered();
    } finally {
      this.#loading.delete(panel);
      panel.restUntil = performance.now() + Math.max(REFRESH_MS, (performance.now() - began) * (SHARE_OF_SERVER - 1));
    }
    if (this.#again.delete(panel)) await this.load(panel, true);
  }

  // Load the visible stale panels that may be loaded again by now.
  loadRested() {
    const now = performance.now();
    for (const panel of this.#stale) if (this.#inSight.has(panel) && panel.restUntil < now) this.load(panel);
  }

  #seen({ target, isIntersecting }) {
    const panel = [...this.#panels].find((one) => one.element === target);
    if (!panel) return;
    if (isIntersecting) this.#inSight.add(panel);
    else this.#inSight.delete(panel);
    if (isIntersecting && this.#stale.has(panel)) this.load(panel);
  }
}
