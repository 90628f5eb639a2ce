"""The audit log of the installation: its lines, and what anchors the logs of runs in
it.
"""
