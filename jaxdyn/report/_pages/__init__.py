"""Whole HTML pages: a report of an identification, and two models beside each other."""
