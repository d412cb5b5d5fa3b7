"""Pictures as SVG elements, and the equivalent ellipsoids of links."""
