"""The worker refuses what cannot work safely, and leaves another project's own queue
alone.
"""

import socket
import sys

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django_q.conf import Conf

from orchestrator.checks import check_worker
from orchestrator.worker.configuration import (
    BROKER,
    configure,
    is_stock_cluster,
    least_timeout,
)


@pytest.fixture(autouse=True)
def conf_of_django_q(monkeypatch):
    """Undo afterwards what `configure` sets."""
    for name, value in list(vars(Conf).items()):
        if name.isupper():
            monkeypatch.setattr(Conf, name, value)
    monkeypatch.setitem(
        connection.settings_dict,
        "CONN_MAX_AGE",
        connection.settings_dict["CONN_MAX_AGE"],
    )


def refusal(settings, **options):
    """The worker's sentence, which `manage.py check` says too."""
    settings.Q_CLUSTER = {"name": "here", "broker_class": BROKER, **options}
    with pytest.raises(ImproperlyConfigured) as caught:
        configure()
    assert [(error.id, error.msg) for error in check_worker(None)] == [
        ("orchestrator.E006", str(caught.value))
    ]
    return str(caught.value)


def test_the_settings_of_this_project_are_taken(settings):
    settings.Q_CLUSTER = {
        "name": "here",
        "broker_class": BROKER,
        "workers": 7,
        "timeout": 500,
        "retry": 2000,
    }
    configure()
    assert check_worker(None) == []
    assert Conf.WORKERS == 7
    assert Conf.TIMEOUT == 500
    assert Conf.RETRY == 2000
    assert Conf.PREFIX == "here"


def test_a_queue_for_other_tasks_is_not_touched_and_not_used(settings):
    settings.Q_CLUSTER = configuration = {
        "name": "theirs",
        "orm": "default",
        "workers": 9,
        "timeout": 5,
        "retry": 6,
    }
    settings.COUNTERSIGN = {"WORKERS": 3}
    configure()
    assert Conf.WORKERS == 3
    assert Conf.BROKER_CLASS == BROKER
    assert Conf.PREFIX == "countersign"
    assert configuration == {
        "name": "theirs",
        "orm": "default",
        "workers": 9,
        "timeout": 5,
        "retry": 6,
    }


def test_without_a_queue_in_the_settings_the_timeout_covers_a_slice_and_its_longest_node(
    settings,
):
    del settings.Q_CLUSTER
    configure()
    assert least_timeout() == Conf.TIMEOUT
    assert Conf.RETRY > Conf.TIMEOUT
    assert Conf.ACK_FAILURES is True
    assert Conf.SAVE_LIMIT == -1
    assert Conf.SCHEDULER is False


def test_a_retry_that_is_not_longer_than_the_timeout_is_refused(settings):
    assert "must be greater than" in refusal(settings, timeout=1000, retry=1000)


def test_a_timeout_shorter_than_a_slice_with_its_longest_node_is_refused(settings):
    assert f"may take {least_timeout()} s" in refusal(
        settings, timeout=least_timeout() - 1, retry=9999
    )


def test_a_worker_takes_settings_that_suit_web_processes(settings, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": True})
    assert check_worker(None) == []
    configure()
    assert connection.settings_dict["CONN_MAX_AGE"] == 60
    assert connection.settings_dict["OPTIONS"] == {}


def test_a_stock_cluster_of_other_tasks_keeps_its_connections_as_they_are(
    settings, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["manage.py", "qcluster"])
    settings.Q_CLUSTER = {"name": "theirs", "orm": "default"}
    assert not is_stock_cluster()
    settings.Q_CLUSTER = {"name": "here", "broker_class": BROKER}
    assert is_stock_cluster()


def test_the_check_is_among_those_that_django_runs(settings):
    settings.Q_CLUSTER = {"broker_class": BROKER, "timeout": 1, "retry": 2}
    assert "orchestrator.E006" in [found.id for found in run_checks()]


def test_up_refuses_what_its_worker_would_refuse_before_it_starts_anything(settings):
    settings.Q_CLUSTER = {"broker_class": BROKER, "timeout": 1, "retry": 2}
    # Its port is taken: were nothing refused, it would not start either, but say so.
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(CommandError, match="timeout"),
    ):
        call_command("up", "--port", str(taken.getsockname()[1]))
