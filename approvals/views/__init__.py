"""The pages of floor 2: inbox, review, signing, receipt. Each asks the permissions and
calls the verbs of the API.
"""
