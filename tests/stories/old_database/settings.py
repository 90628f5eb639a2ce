"""The settings of the processes that go on with the old database: those of the tests,
with its graphs.
"""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.stories.old_database"]
