"""A process whose clock is wrong, as on a host that lost its time server. Settings of
tests call it first of all.
"""

import time
from datetime import datetime, timedelta

from django.utils import timezone


def shift(seconds: float) -> None:
    """Let `time.time` and Django's `timezone.now` be off by so much in this process and
    those forked from it.
    """
    now = time.time
    moment = timezone.now

    def shifted_now() -> datetime:
        return moment() + timedelta(seconds=seconds)

    time.time = lambda: now() + seconds
    timezone.now = shifted_now
