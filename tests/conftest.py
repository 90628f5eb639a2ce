"""What every test may ask for."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import TransactionTestCase

from tests import cast


@pytest.fixture
def people(db: None) -> cast.People:
    """The cast: see `tests.cast`."""
    return cast.People()


@pytest.fixture(scope="session", autouse=True)
def emptying_is_allowed_between_tests() -> Iterator[None]:
    """Lift the triggers on decisions for the flush after a test with real transactions, and for nothing else."""
    from approvals import append_only

    flush = TransactionTestCase._fixture_teardown

    def teardown(case: Any) -> None:
        with append_only.triggers_lifted():
            flush(case)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", teardown)
        yield


@pytest.fixture(autouse=True)
def graphs_of_one_test_are_not_seen_by_the_next() -> Iterator[None]:
    """Forget what a test registered, or put in the place of another graph of the same name."""
    from orchestrator.engine import registry

    before = dict(registry._known)
    yield
    registry._known.clear()
    registry._known.update(before)
