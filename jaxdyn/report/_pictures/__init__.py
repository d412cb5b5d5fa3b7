"""Pictures as SVG elements, and the ellipsoids that stand for bodies."""
