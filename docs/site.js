// On a narrow screen wide tables and figures scroll; the keyboard must reach them too.
document.addEventListener("DOMContentLoaded", () => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset p:has(> svg.figure)"))
    wide.tabIndex = 0;
});
