"""The places of a graph's boxes and lines on the page: a layered layout, left to right.
Pure; pages call it.

Steps: `layers` (columns), `order` (rows, with few crossings), `place` (coordinates),
`route` (paths). It knows nothing of runs: `orchestrator.display.diagram.paint` paints
what has run and what waits over the same drawing.
"""

from orchestrator.display.diagram.drawing import (
    Box,
    Drawing,
    Link,
    Route,
    draw,
)
from orchestrator.display.diagram.route import Placed

__all__ = [
    "Box",
    "Drawing",
    "Link",
    "Placed",
    "Route",
    "draw",
]
