"""Identification of robots with a moving base, and of mechanisms with unmeasured forces."""
