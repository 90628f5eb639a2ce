"""The page on which a run goes on from an older checkpoint: as a fork, as a replay, or
on a new line.
"""
