"""Pages of the audit log: the list, one line with its evidence, and the export."""
