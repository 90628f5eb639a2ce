"""The settings of an installation whose memory is measured: those of the tests, but no
worker process is replaced after some runs, which would hide what it keeps.
"""

from tests.settings import *  # noqa: F403
from tests.settings import Q_CLUSTER

Q_CLUSTER = {**Q_CLUSTER, "recycle": 1_000_000}
