"""The part of the API that exports and imports bundles."""
