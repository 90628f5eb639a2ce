"""Where the boxes and lines of a graph stand on the page: a layered layout, left to right. Pure; pages call it.

Steps: `layers` (which column), `order` (which row, few crossings), `place` (coordinates), `route` (paths). It knows
nothing of runs: what has run and what waits is painted over the same drawing by `orchestrator.display.diagram.paint`.
"""

from orchestrator.display.diagram.drawing import Box, Drawing, Link, Route, draw
from orchestrator.display.diagram.route import Placed

__all__ = ["Box", "Drawing", "Link", "Placed", "Route", "draw"]
