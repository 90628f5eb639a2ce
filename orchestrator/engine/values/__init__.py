"""Values, their bytes and their faults. Pure."""
