"""The pages of floor 3: runs, graphs, starting, settling, workers. Each asks
permissions and calls the API's verbs.
"""
