"""One superstep: planned, run, reduced. Pure."""
