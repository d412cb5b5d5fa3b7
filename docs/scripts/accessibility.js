// The theme wraps each copy button in <nav>, which screen readers would list as a navigation landmark for every code block;
// and tables wider than the screen scroll, which the keyboard must be able to do too.
new MutationObserver(() => {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "none");
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])"))
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
}).observe(document.documentElement, { childList: true, subtree: true });
