// The theme wraps each copy button in <nav>; without this, screen readers list every code block as a navigation landmark.
new MutationObserver(() => {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "none");
}).observe(document.documentElement, { childList: true, subtree: true });
