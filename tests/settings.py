"""The project's own settings as the demo has them, made fast. The folder for data comes
from `tests.pgplugin`.
"""

import os
import sys
from pathlib import Path

# Hundreds of processes start in a pass. The linter's rich, which a log would take where
# it is found, is a good part of what a start costs.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]

os.environ.setdefault("COUNTERSIGN_DEMO", "true")

if "COUNTERSIGN_TEST_CLOCK" in os.environ:
    # A process on a host whose clock is wrong by so many seconds.
    from tests.support.clocks import shift

    shift(float(os.environ["COUNTERSIGN_TEST_CLOCK"]))

from orchestrator.company_login import configuration as company_login  # noqa: E402
from orchestrator.settings import *  # noqa: E402, F403
from orchestrator.settings import (  # noqa: E402
    DATA_DIR,
    DATABASES,
    INSTALLED_APPS,
    MIDDLEWARE,
    SILENCED_SYSTEM_CHECKS,
)

INSTALLED_APPS = [
    # Without a provider, until a test names one.
    *company_login.APPS,
    *INSTALLED_APPS,
    "tests.graphs_app",
    "tests.crash",
]

MIDDLEWARE = [*MIDDLEWARE, *company_login.MIDDLEWARE]

# Processes of tests have short leases, so that takeovers are quick; no atomic node of
# theirs takes that long.
SILENCED_SYSTEM_CHECKS = [*SILENCED_SYSTEM_CHECKS, "orchestrator.E002"]

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Each client of a test has a chain of middleware of its own, which would read every
# file of every app at its start.
WHITENOISE_AUTOREFRESH = True
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
if "COUNTERSIGN_TEST_OUTBOX" in os.environ:
    # A worker process of a story: the test counts the letters from outside.
    EMAIL_FILE_PATH = Path(os.environ["COUNTERSIGN_TEST_OUTBOX"])
else:
    EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not memory: worker processes and browsers must see the same rows.
    DATABASES["default"]["TEST"] = {"NAME": DATA_DIR / "test.sqlite3"}
