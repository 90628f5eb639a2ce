"""The pages of floor 3: runs, graphs, starting, settling, workers. Thin: each asks the same permissions and calls the same verbs as the API."""
