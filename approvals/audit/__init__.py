"""Reads of the audit log, and its words."""
