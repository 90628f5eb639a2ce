"""What `manage.py check` says of versions that the direct statements were never tested
with.
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.checks.registry import registry
from django.db import connection

from approvals import passkeys
from orchestrator import checks
from tests.house.commands import PRODUCTION, ROOT, manage, run
from tests.support.confirmed_graphs import gated
from tests.support.small_graphs import registered

NEWER = (6, 1, 0, "final", 0)
on_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite's driver comes with Python"
)


def warnings() -> list[Any]:
    return checks.check_direct_statements(None)


def test_the_versions_that_are_pinned_are_the_tested_ones() -> None:
    assert warnings() == []


def test_the_project_is_installed_with_the_tested_minors_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (
        f"django>={checks.TESTED_DJANGO[0]},<{_after(checks.TESTED_DJANGO[-1])}"
        in project["dependencies"]
    )
    pins = project["optional-dependencies"]["postgres"]
    assert pins == [
        f"psycopg[binary]>={checks.TESTED_PSYCOPG[0]},<{_after(checks.TESTED_PSYCOPG[-1])}"
    ]


def _after(minor: str) -> str:
    major, number = minor.split(".")
    return f"{major}.{int(number) + 1}"


def test_another_minor_of_django_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django, "VERSION", NEWER)
    (warning,) = warnings()
    assert warning.id == "orchestrator.W002"
    assert "Django 6.1" in warning.msg
    assert "DIRECT_STATEMENTS" in warning.hint


def test_another_patch_of_the_same_minor_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(django, "VERSION", (5, 2, 99, "final", 0))
    assert warnings() == []


@on_postgresql
@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.3.99", False), ("3.4.0", True), ("3.30.1", True), ("4.0", True)],
)
def test_another_minor_of_psycopg_is_warned_of(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(psycopg, "__version__", version)
    assert [warning.id for warning in warnings()] == ["orchestrator.W002"] * warned
    assert all("psycopg" in warning.msg for warning in warnings())


def test_nobody_is_warned_where_the_statements_go_through_djangos_cursors(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.COUNTERSIGN = {"DIRECT_STATEMENTS": False}
    monkeypatch.setattr(django, "VERSION", NEWER)
    assert warnings() == []


def test_settings_that_cannot_be_read_are_another_checks_business(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {"DIRECT_STATEMENTS": "off"}
    assert warnings() == []


def test_every_check_of_this_module_is_registered() -> None:
    ours = [check for name, check in vars(checks).items() if name.startswith("check_")]
    registered = registry.get_checks(include_deployment_checks=True)
    assert [check.__name__ for check in ours if check not in registered] == []


ITS_CHECKS = """
import sys
import django
django.setup()
from django.core.checks import messages
from orchestrator.management.commands.worker import Command
Command().check(tags=Command.requires_system_checks, fail_level=messages.ERROR)
pages = ("rest_framework.views", "approvals.urls", "orchestrator.urls")
print([name for name in pages if name in sys.modules])
"""


def test_a_worker_asks_the_projects_checks_and_loads_no_pages(tmp_path: Path) -> None:
    """Each page and each serializer would be in the memory of each process of a
    cluster.
    """
    settings = PRODUCTION | {"COUNTERSIGN_DATA_DIR": tmp_path}
    well = run(
        sys.executable,
        "-c",
        ITS_CHECKS,
        DJANGO_SETTINGS_MODULE="orchestrator.settings",
        **settings,
    )
    assert well.returncode == 0, well.stderr
    assert well.stdout.strip() == "[]", well.stderr
    bad = manage(
        "worker", COUNTERSIGN_TRUSTED_KEYS=json.dumps({"north": "00" * 32}), **settings
    )
    assert bad.returncode == 1, bad.stderr
    assert "orchestrator.E001" in bad.stderr, bad.stderr


def test_a_passkey_gate_without_the_library_is_warned_of_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered(gated("by_password", confirm="password"))
    registered(gated("by_passkey", confirm="passkey"))
    assert checks.check_passkeys(None) == []
    monkeypatch.setattr(passkeys, "is_available", False)
    (warning,) = checks.check_passkeys(None)
    assert warning.id == "orchestrator.W007"
    assert "by_passkey.propose" in warning.msg
    assert "django-countersign[passkeys]" in warning.hint
    assert checks.check_passkeys in registry.get_checks()
