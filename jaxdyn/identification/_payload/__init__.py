"""Payloads, and drive gains from known ones."""
