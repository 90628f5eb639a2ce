"""django-q2's configuration for our cluster. Set in the worker's own process; other tasks stay untouched."""

import sys
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django_q.conf import Conf

from checkpoints.conf import conf
from orchestrator.connections import keep_open
from orchestrator.worker import claimable

BROKER = "orchestrator.worker.broker.RunBroker"
SPARE_SECONDS = 30
"""Beyond a slice and its longest node, before a worker counts as hung."""


def configure() -> None:
    """Make this process a cluster of ours. Raises `ImproperlyConfigured`, in one sentence, where that is unsafe."""
    if faults := find_faults():
        raise ImproperlyConfigured(faults[0])
    values = _defaults() | _given()
    for name, value in values.items():
        setattr(Conf, name.upper(), value)
    Conf.PREFIX = Conf.CLUSTER_NAME = values["name"]
    keep_open()


def find_faults() -> list[str]:
    """Say what the worker refuses in the settings, a sentence each. `manage.py check` and `up` refuse the same."""
    return list(_faults_of_times(_defaults() | _given()))


def least_timeout() -> int:
    """Seconds that a worker may rightly be busy with one slice: its time, plus the node that began at its end."""
    return int(conf().slice_seconds + claimable.longest_task_seconds() + conf().grace_seconds) + SPARE_SECONDS


def is_stock_cluster() -> bool:
    """Return whether this process is a `manage.py qcluster` that works on runs."""
    return sys.argv[1:2] == ["qcluster"] and bool(_given())


def _given() -> dict[str, Any]:
    """The project's Q_CLUSTER where it is meant for us, nothing where it is for other tasks."""
    given: dict[str, Any] = getattr(settings, "Q_CLUSTER", None) or {}
    return given if given.get("broker_class") == BROKER else {}


def _defaults() -> dict[str, Any]:
    timeout = least_timeout()
    return {
        "name": "countersign",
        "broker_class": BROKER,
        "workers": conf().workers,
        "queue_limit": conf().workers,
        "bulk": 1,
        "timeout": timeout,
        "retry": 4 * timeout,
        "ack_failures": True,
        "max_attempts": 1,
        "save_limit": -1,
        "guard_cycle": 0.5,
        "recycle": 200,
        "catch_up": False,
        "scheduler": False,
    }


def _faults_of_times(values: dict[str, Any]) -> Iterator[str]:
    timeout, retry, least = values["timeout"], values["retry"], least_timeout()
    if not timeout or timeout < least:
        yield f"Q_CLUSTER['timeout'] is {timeout} s, but a slice with its longest node may take {least} s: raise it"
    elif retry <= timeout:
        yield f"Q_CLUSTER['retry'] ({retry} s) must be greater than Q_CLUSTER['timeout'] ({timeout} s)"
