"""Arms the kill points where COUNTERSIGN_KILL asks for one, and a freeze where
COUNTERSIGN_FREEZE does.
"""

import os

from django.apps import AppConfig


class CrashConfig(AppConfig):
    name = "tests.crash"
    label = "crash"

    def ready(self) -> None:
        if os.environ.get("COUNTERSIGN_KILL"):
            from tests.crash import faults

            faults.arm()
        if os.environ.get("COUNTERSIGN_FREEZE"):
            from tests.crash import freezes

            freezes.arm()
