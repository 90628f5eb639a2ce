"""The pages of floor 3: runs, graphs, starting, settling, workers. Each asks the permissions and calls the verbs of
the API.
"""
