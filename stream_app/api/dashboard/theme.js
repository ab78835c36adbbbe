// Sets the chosen theme. This script runs before the page is drawn, so the other theme is never visible.
(() => {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
