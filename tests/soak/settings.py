"""The settings of every process of a soak: those of the tests, on a database that the
soak made, with its graphs.
"""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.soak"]
