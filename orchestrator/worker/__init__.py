"""The worker: takes runs out of the run table and gives each to a process for one
slice.

The only package that imports django-q2, which carries it. It never decides what a run
does next: the runner does.
"""
