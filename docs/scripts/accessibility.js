// The theme wraps each copy button in <nav>, which screen readers would list as a navigation landmark for every code block.
// Tables and equations wider than the screen scroll; making them focusable lets the keyboard scroll them too.
const label = () => {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "none");
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .equation"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
};
new MutationObserver(label).observe(document.documentElement, { childList: true, subtree: true });
for (const event of ["load", "resize"]) window.addEventListener(event, label);
