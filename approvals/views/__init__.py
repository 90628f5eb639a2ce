"""The pages of floor 2: inbox, review, signing, receipt. Thin: each asks the same permissions and calls the same verbs as the API."""
