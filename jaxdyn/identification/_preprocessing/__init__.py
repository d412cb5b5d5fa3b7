"""From logs to samples: filters, resampling, derivatives."""
