"""The parts of the report, a file each: from results to HTML."""
