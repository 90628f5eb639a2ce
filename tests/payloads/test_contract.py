"""One suite over every payload backend; and the suite finds backends that break the contract in any one way."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.storage import InMemoryStorage

from checkpoints import conformance
from checkpoints.payloads import DatabasePayloads, FilePayloads, MemoryPayloads, PayloadBackend, SealedPayloads
from tests.payloads import backends


def test_the_database_backend_keeps_the_contract() -> None:
    conformance.check_payloads(DatabasePayloads)


def test_the_memory_backend_keeps_the_contract() -> None:
    conformance.check_payloads(MemoryPayloads, lasting=False)


def test_the_file_backend_keeps_the_contract(tmp_path: Path) -> None:
    conformance.check_payloads(lambda: FilePayloads(location=tmp_path))


def test_sealed_files_keep_the_contract(tmp_path: Path) -> None:
    conformance.check_payloads(lambda: SealedPayloads(FilePayloads(location=tmp_path)))


def test_sealed_rows_keep_the_contract() -> None:
    conformance.check_payloads(lambda: SealedPayloads(DatabasePayloads()))


def test_a_storage_that_is_no_folder_keeps_the_contract_but_for_two_at_once() -> None:
    # Django's storage API cannot refuse a name atomically: an object storage's own conditional put will.
    storage = InMemoryStorage()
    rules = [rule for rule in conformance.PAYLOAD_RULES if rule.__name__ != "of_two_that_want_one_name_one_has_it"]
    for rule in rules:
        rule(FilePayloads(storage))


@pytest.mark.parametrize("kind", backends.BROKEN)
def test_a_backend_that_breaks_one_rule_is_found(kind: Callable[[], PayloadBackend]) -> None:
    with pytest.raises(conformance.Broken):
        conformance.check_payloads(kind, lasting=False)


def test_a_backend_that_looks_before_it_writes_is_found(tmp_path: Path) -> None:
    with pytest.raises(conformance.Broken, match="of_two_that_want_one_name_one_has_it"):
        conformance.check_payloads(lambda: backends.LooksFirst(location=tmp_path))


def test_a_backend_that_forgets_with_its_object_is_found() -> None:
    with pytest.raises(conformance.Broken, match="outlives"):
        conformance.check_payloads(MemoryPayloads)


def test_every_rule_can_be_broken() -> None:
    """No rule is there for nothing: for each there is a backend that is found by it."""
    found = set()
    for kind in backends.BROKEN:
        for rule in conformance.PAYLOAD_RULES:
            try:
                rule(kind())
            except Exception:
                found.add(rule.__name__)
    known = {rule.__name__ for rule in conformance.PAYLOAD_RULES}
    assert known - found <= {"of_two_that_want_one_name_one_has_it"}  # which `LooksFirst` breaks
