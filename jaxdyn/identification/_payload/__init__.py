"""Identification of payloads, and calibration of drive gains with a known payload."""
