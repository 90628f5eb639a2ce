"""Backends by name: what the settings may say, what a graph may ask for, and what is
refused by name.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from checkpoints import payloads
from checkpoints.conf import conf
from checkpoints.payloads import DatabasePayloads, FilePayloads, SealedPayloads, backend
from orchestrator import checks
from orchestrator.engine import registry
from orchestrator.engine.errors import UnknownBackend
from tests.house.commands import ROOT
from tests.support.small_graphs import graph


def _configure(settings: Any, **entries: Any) -> None:
    settings.COUNTERSIGN = {"PAYLOADS": entries}


def test_without_settings_there_is_the_database_and_nothing_else(settings: Any) -> None:
    settings.COUNTERSIGN = {}
    assert isinstance(backend("database"), DatabasePayloads)
    with pytest.raises(
        UnknownBackend, match="no payload backend 'files'; known: database"
    ):
        backend("files")


def test_a_short_word_or_a_dotted_path_names_the_class(
    settings: Any, tmp_path: Path
) -> None:
    options = {"location": str(tmp_path)}
    by_path = {"backend": "checkpoints.payloads.FilePayloads", "options": options}
    _configure(settings, short={"backend": "files", "options": options}, dotted=by_path)
    reference = backend("short").put("a/b", b"x")
    assert isinstance(backend("dotted"), FilePayloads)
    assert backend("dotted").get("a/b", reference) == b"x"


def test_a_backend_can_be_sealed_by_the_settings(settings: Any, tmp_path: Path) -> None:
    files = {"backend": "files", "options": {"location": str(tmp_path)}}
    _configure(settings, safe={"backend": "sealed", "options": {"of": files}})
    assert isinstance(backend("safe"), SealedPayloads)
    assert backend("safe").get("a/b", backend("safe").put("a/b", b"x")) == b"x"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"database": {"backend": "files"}}, "taken by the rows"),
        ({"a b": {"backend": "files"}}, "a name of 1 to 60"),
        ({"x" * 61: {"backend": "files"}}, "a name of 1 to 60"),
        ({"files": "files"}, "must be a dictionary"),
        ({"files": {"location": "x"}}, "with a 'backend'"),
        ({"files": {"backend": "files", "location": "x"}}, "not 'location'"),
        ({"files": {"backend": "files", "options": "x"}}, "must be a dictionary"),
    ],
)
def test_an_entry_that_is_none_is_refused_at_start_up_by_its_name(
    settings: Any, entries: Any, words: str
) -> None:
    settings.COUNTERSIGN = {"PAYLOADS": entries}
    with pytest.raises(ImproperlyConfigured, match=words):
        conf()
    assert [found.id for found in checks.check_settings(None)] == ["orchestrator.E001"]
    assert checks.check_payloads(None) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"backend": "no.such.Class"}, "no"),
        ({"backend": "files", "options": {"colour": "red"}}, "colour"),
        ({"backend": "sealed"}, "of"),
        (
            {"backend": "builtins.dict"},
            "is no payload backend: no in_row, put, delete, names",
        ),
    ],
)
def test_a_backend_that_cannot_be_made_is_named_by_the_system_check(
    settings: Any, entry: Any, words: str
) -> None:
    _configure(settings, mine=entry)
    (error,) = checks.check_payloads(None)
    assert error.id == "orchestrator.E003"
    assert "['mine']" in error.msg
    assert words in error.msg


def test_a_default_that_is_not_there_is_refused(settings: Any) -> None:
    settings.COUNTERSIGN = {"DEFAULT_PAYLOADS": "files"}
    with pytest.raises(ImproperlyConfigured, match="DEFAULT_PAYLOADS.*'files'"):
        conf()


def test_a_graph_that_says_nothing_takes_the_default_of_the_settings(
    settings: Any, tmp_path: Path
) -> None:
    files = {"backend": "files", "options": {"location": str(tmp_path)}}
    settings.COUNTERSIGN = {"PAYLOADS": {"files": files}, "DEFAULT_PAYLOADS": "files"}
    assert payloads.chosen(None) == "files"
    assert payloads.chosen("database") == "database"


def test_a_graph_that_asks_for_a_backend_that_is_not_there_is_named_by_the_system_check(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {}
    flow = graph("elsewhere", payloads="cellar")
    flow.node("a")(lambda state, ctx: None)
    flow.edge("START", "a")
    flow.edge("a", "END")
    registry.replace(flow)
    (error,) = checks.check_payloads(None)
    assert error.id == "orchestrator.E004"
    assert error.msg == "graph elsewhere asks for payloads='cellar'; known: database"


def test_the_environment_chooses_the_backend_of_this_project(tmp_path: Path) -> None:
    places = {
        "cellar": {"backend": "files", "options": {"location": str(tmp_path / "kept")}}
    }
    variables = {
        "COUNTERSIGN_PAYLOADS": json.dumps(places),
        "COUNTERSIGN_DEFAULT_PAYLOADS": "cellar",
    }
    data = {
        "COUNTERSIGN_DATA_DIR": str(tmp_path),
        "COUNTERSIGN_DEBUG": "true",
        "DATABASE_URL": "",
    }
    code = (
        "from checkpoints import payloads; print(payloads.chosen(None),"
        " sorted(payloads.backends()))"
    )
    ran = subprocess.run(
        [sys.executable, "manage.py", "shell", "-v", "0", "-c", code],
        env={
            **os.environ,
            **variables,
            **data,
            "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split("\n")[0] == "cellar ['cellar', 'database']", ran.stderr
