"""The answers of the functions that gates declare, as rows of a slice."""
