"""A decision's trace in words: the one place that explains, for the log, `explain` and `describe`."""
