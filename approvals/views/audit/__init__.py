"""Pages of the audit log: the list, one line with what stands behind it, the export."""
