"""Preprocessing of logs: filters, resampling and derivatives."""
