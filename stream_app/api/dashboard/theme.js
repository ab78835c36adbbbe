// Sets the theme before the page is drawn, so the other one is never visible: the theme that the reader chose, or in a
// frame that its address names; without a choice that of the system.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const { pathname, search } = window.location;
  const named = pathname.startsWith("/embed/") ? () => new URLSearchParams(search).get("theme") : () => localStorage.getItem("theme");
  const set = () => { document.documentElement.dataset.theme = ["light", "dark"].find((one) => one === named()) ?? (dark.matches ? "dark" : "light"); };
  set();
  dark.addEventListener("change", set);
})();
