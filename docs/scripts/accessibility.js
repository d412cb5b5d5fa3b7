// The theme wraps each copy button in <nav>, which screen readers would list as a navigation landmark for every code block;
// and tables and equations wider than the screen scroll, which the keyboard must be able to do too.
const label = () => {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "none");
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .equation"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
};
new MutationObserver(label).observe(document.documentElement, { childList: true, subtree: true });
for (const event of ["load", "resize"]) window.addEventListener(event, label);
