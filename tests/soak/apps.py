"""The soak as an app: its graphs are found, and where it is asked to, a guard of the
product is taken away.

COUNTERSIGN_SOAK_BREAK proves that the soak can fail: `journal` lets an attempt whose
outcome nobody knows simply run again.
"""

import os
from pathlib import Path

from django.apps import AppConfig

from tests.soak import freezes


class SoakConfig(AppConfig):
    name = "tests.soak"
    label = "soak"

    def ready(self) -> None:
        if os.environ.get("COUNTERSIGN_SOAK_BREAK") == "journal":
            from orchestrator.engine.graphs.node import Node

            Node.safe_again = property(lambda node: True)  # type: ignore[method-assign, assignment]
        if folder := os.environ.get(freezes.FOLDER):
            freezes.arm(Path(folder))
