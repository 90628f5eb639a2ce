"""The configuration of django-q2 for a cluster that works on runs. It is set in the
worker's own process, so that a project's other tasks stay untouched.
"""

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
"""Seconds beyond a slice and its longest node before a worker counts as hung."""


def configure() -> None:
    """Make this process a cluster that works on runs. Raises `ImproperlyConfigured`, in
    one sentence, if that is unsafe.
    """
    faults = find_faults()
    if faults:
        raise ImproperlyConfigured(faults[0])
    values = _defaults() | _project_settings()
    for name, value in values.items():
        setattr(Conf, name.upper(), value)
    Conf.PREFIX = Conf.CLUSTER_NAME = values["name"]
    keep_open()


def find_faults() -> list[str]:
    """Return the faults for which the worker refuses the settings, a sentence each.
    `manage.py check` and `up` refuse the same.
    """
    return list(_faults_of_times(_defaults() | _project_settings()))


def least_timeout() -> int:
    """Return the seconds that a healthy worker may be busy with one slice: the slice's
    time, plus the node that began at its end.
    """
    longest_task = claimable.longest_task_seconds()
    busy = conf().slice_seconds + longest_task + conf().grace_seconds
    return int(busy) + SPARE_SECONDS


def is_stock_cluster() -> bool:
    """Return whether this process is a `manage.py qcluster` that works on runs."""
    return sys.argv[1:2] == ["qcluster"] and bool(_project_settings())


def _project_settings() -> dict[str, Any]:
    """Return the project's Q_CLUSTER; empty if that is for other tasks."""
    configured: dict[str, Any] = getattr(settings, "Q_CLUSTER", None) or {}
    if configured.get("broker_class") != BROKER:
        return {}
    return configured


def _defaults() -> dict[str, Any]:
    timeout = least_timeout()
    return {
        "name": "countersign",
        "broker_class": BROKER,
        "workers": conf().workers,
        # Nothing waits in a local queue under a lease.
        "queue_limit": conf().workers,
        "bulk": 1,
        "timeout": timeout,
        # It only has to exceed `timeout`: the broker delivers nothing twice, because a
        # lease that is lost brings its run back.
        "retry": 4 * timeout,
        "ack_failures": True,
        "max_attempts": 1,
        # Saving each success would lock rows.
        "save_limit": -1,
        # The guard counts timeouts down by this, and acts only if it meets zero
        # exactly.
        "guard_cycle": 0.5,
        "recycle": 200,
        # On SQLite the stock scheduler doubles schedules; standing jobs need none.
        "catch_up": False,
        "scheduler": False,
    }


def _faults_of_times(values: dict[str, Any]) -> Iterator[str]:
    timeout = values["timeout"]
    retry = values["retry"]
    least = least_timeout()
    if not timeout or timeout < least:
        yield (
            f"Q_CLUSTER['timeout'] is {timeout} s, "
            f"but a slice with its longest node may take {least} s: raise it"
        )
    elif retry <= timeout:
        yield (
            f"Q_CLUSTER['retry'] ({retry} s) must be greater than "
            f"Q_CLUSTER['timeout'] ({timeout} s)"
        )
