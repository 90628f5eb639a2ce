"""One suite over every payload backend; and the suite finds backends that break the
contract in any one way.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.core.files.storage import InMemoryStorage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import conformance
from checkpoints.payloads import (
    DatabasePayloads,
    FilePayloads,
    MemoryPayloads,
    PayloadBackend,
    SealedPayloads,
)
from orchestrator.engine.errors import PayloadLost, PayloadTaken
from tests.support import payload_backends as backends


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
    # Django's storage API cannot refuse a name atomically: an object storage's own
    # conditional put will.
    storage = InMemoryStorage()
    rules = [
        rule
        for rule in conformance.PAYLOAD_RULES
        if rule.__name__ != "of_two_that_want_one_name_one_has_it"
    ]
    for rule in rules:
        rule(FilePayloads(storage))


@pytest.mark.parametrize("kind", backends.BROKEN)
def test_a_backend_that_breaks_one_rule_is_found(
    kind: Callable[[], PayloadBackend],
) -> None:
    with pytest.raises(conformance.Broken):
        conformance.check_payloads(kind, lasting=False)


def test_a_backend_that_looks_before_it_writes_is_found(tmp_path: Path) -> None:
    with pytest.raises(
        conformance.Broken, match="of_two_that_want_one_name_one_has_it"
    ):
        conformance.check_payloads(lambda: backends.LooksFirst(location=tmp_path))


def test_a_backend_that_forgets_with_its_object_is_found() -> None:
    with pytest.raises(conformance.Broken, match="outlives"):
        conformance.check_payloads(MemoryPayloads)


def test_every_rule_can_be_broken() -> None:
    """No rule is there for nothing: for each there is a backend that is found by it."""
    collected = set()
    for kind in backends.BROKEN:
        for rule in conformance.PAYLOAD_RULES:
            try:
                rule(kind())
            except Exception:
                collected.add(rule.__name__)
    known = {rule.__name__ for rule in conformance.PAYLOAD_RULES}
    assert known - collected <= {
        "of_two_that_want_one_name_one_has_it"
    }  # which `LooksFirst` breaks


NAMES = st.sampled_from(["r/a", "r/a/b", "r/ab", "r", "s/a"])
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "get", "delete"]),
        NAMES,
        st.sampled_from([b"", b"one", b"two"]),
    ),
    max_size=20,
)


@pytest.mark.parametrize("kind", ["memory", "files", "sealed files", "storage"])
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acts=ACTS)
def test_any_order_of_puts_gets_and_deletes_does_what_a_dictionary_would(
    kind: str, acts: list[Any]
) -> None:
    with TemporaryDirectory() as folder:
        backend = {
            "memory": MemoryPayloads,
            "files": lambda: FilePayloads(location=folder),
            "sealed files": lambda: SealedPayloads(FilePayloads(location=folder)),
            "storage": lambda: FilePayloads(InMemoryStorage()),
        }[kind]()
        model: dict[str, tuple[bytes, bytes]] = {}
        for act, name, data in acts:
            _like_a_dictionary(backend, model, act, name, data)
        later = datetime.now(UTC) + timedelta(hours=1)
        assert set(backend.names(before=later)) == set(model)


def _like_a_dictionary(
    backend: PayloadBackend,
    model: dict[str, tuple[bytes, bytes]],
    act: str,
    name: str,
    data: bytes,
) -> None:
    if act == "delete":
        backend.delete(name, b"")
        model.pop(name, None)
    elif act == "get" and name in model:
        assert backend.get(name, model[name][1]) == model[name][0]
    elif act == "get":
        with pytest.raises(PayloadLost):
            backend.get(name, backend.put(f"{name}/else", data))
        backend.delete(f"{name}/else", b"")
    elif name in model and model[name][0] != data:
        with pytest.raises(PayloadTaken):
            backend.put(name, data)
    else:
        model[name] = data, backend.put(name, data)
