"""Plots and pictures for pages, and the equivalent ellipsoids of links."""
