// Whoever uses a keyboard scrolls wide tables, too. The theme wraps them when a page has been read.
addEventListener("load", () => setTimeout(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
}));
