"""Settings of the bench's own processes: the project's, with the bench's graphs. The
environment comes from `bench.places`.
"""

from orchestrator.settings import *  # noqa: F403
from orchestrator.settings import INSTALLED_APPS, SILENCED_SYSTEM_CHECKS, STORAGES

INSTALLED_APPS = [*INSTALLED_APPS, "bench"]
# Leases of half a second, so that the death of a process is soon noticed.
SILENCED_SYSTEM_CHECKS = [*SILENCED_SYSTEM_CHECKS, "orchestrator.E002"]
# A debugging Django notes every statement, and that would be measured too.
DEBUG = False
# Nobody has collected static files for the pages that are looked at.
STORAGES = {
    **STORAGES,
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
