"""What every test may ask for."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support import cast, migrated_database, order
from tests.support.empty_tables import EmptyTables
from tests.support.payload_backends import Full

# No test is about how fast a machine is, and a busy one is no finding.
hypothesis_settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest first. A whole pass shares its tests among so many processes."""
    items[:] = order.spread(
        items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    )


def pytest_collection_finish() -> None:
    """Freeze what was collected: it stays until the end, so the garbage collector need
    not look through it, nor as often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_blocker: Any,
    django_db_modify_db_settings: None,
) -> None:
    """Set the databases up without migrating. The fixture of pytest-django migrates in
    each process, which takes seconds.
    """
    with django_db_blocker.unblock():
        migrated_database.prepare(Path(os.environ["COUNTERSIGN_DATA_DIR"]))


@pytest.fixture
def people(db: None) -> cast.People:
    """The cast: see `tests.support.cast`."""
    return cast.People()


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Set some of the settings under COUNTERSIGN by their names; the others stay as
    they are.
    """

    def change(**values: Any) -> None:
        settings.COUNTERSIGN = {**settings.COUNTERSIGN, **values}

    return change


@pytest.fixture
def cellar(configure: Any, tmp_path: Path) -> Iterator[Path]:
    """The folder of the payload backend `cellar`, which the settings then know: a disk
    that a test can fill.
    """
    entry = {
        "backend": "tests.support.payload_backends.Full",
        "options": {"location": str(tmp_path)},
    }
    configure(PAYLOADS={"cellar": entry})
    yield tmp_path
    Full.left = None
    Full.away = False


@pytest.fixture(scope="session", autouse=True)
def tables_are_emptied_quickly() -> Iterator[None]:
    """Empty the tables after a test with real transactions; see
    `tests.support.empty_tables`.
    """
    tables = EmptyTables(TransactionTestCase._fixture_teardown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            TransactionTestCase, "_fixture_teardown", lambda case: tables.restore(case)
        )
        yield


@pytest.fixture(autouse=True)
def graphs_of_one_test_are_not_seen_by_the_next() -> Iterator[None]:
    """Forget what a test registered, or put in the place of another graph of the same
    name.
    """
    from orchestrator import discovery
    from orchestrator.engine import registry

    before = dict(registry._registered)
    yield
    discovery.forget_noted()  # the rows about its versions are gone too
    registry._registered.clear()
    registry._registered.update(before)
