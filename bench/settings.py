"""Settings of the bench's own processes: the project's, with the bench's graphs and prepared statements.

The environment comes from `bench.places`. BENCH_PREPARED=false measures the connection as Django makes it by default.
"""

import os

from orchestrator.settings import *  # noqa: F403
from orchestrator.settings import DATABASES, INSTALLED_APPS, SILENCED_SYSTEM_CHECKS

INSTALLED_APPS = [*INSTALLED_APPS, "bench"]
# Leases of half a second, so that the death of a process is soon noticed.
SILENCED_SYSTEM_CHECKS = [*SILENCED_SYSTEM_CHECKS, "orchestrator.E002"]

_PREPARED = os.environ.get("BENCH_PREPARED", "true") == "true"
if DATABASES["default"]["ENGINE"].endswith("postgresql") and _PREPARED:
    DATABASES["default"]["OPTIONS"] |= {"server_side_binding": True, "prepare_threshold": 1}
