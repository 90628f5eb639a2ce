"""The store in memory keeps the contract, and needs no Django."""

import subprocess
import sys
from typing import Any

import pytest

from checkpoints.store import MemoryStore, conformance
from orchestrator.engine.errors import KeyConflict

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_store_in_memory_keeps_the_contract() -> None:
    conformance.check_store(MemoryStore)


def test_the_store_in_memory_is_there_without_django() -> None:
    code = (
        "import sys\n"
        "from checkpoints.store import MemoryStore\n"
        "store = MemoryStore()\n"
        "saved = store.save('run', {'scratch': {'n': 1}})\n"
        "assert store.get(saved.id).state['scratch'] == {'n': 1}\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'django']\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


class Guarded(dict[Any, Any]):
    """Entries that are only touched under the lock of their store."""

    def __init__(self, lock: Any) -> None:
        super().__init__()
        self.lock = lock

    def __getitem__(self, key: Any) -> Any:
        assert self.lock._is_owned()
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        assert self.lock._is_owned()
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        assert self.lock._is_owned()
        super().__delitem__(key)

    def pop(self, *args: Any) -> Any:
        assert self.lock._is_owned()
        return super().pop(*args)


def test_entries_are_read_and_changed_under_the_lock_only() -> None:
    store = MemoryStore()
    store._entries = Guarded(store._lock)
    saved = store.save("run", {"scratch": {"n": 1}})
    assert store.get(saved.id).state == store.load("run").state
    forked = store.fork(saved.id)
    store.delete(saved.id)
    assert store.clear(forked.run) == 1
    assert store.list() == []


def test_saved_again_under_one_id_a_state_with_true_is_not_one_with_1() -> None:
    store = MemoryStore()
    saved = store.save("run", {"scratch": {"n": 1}})
    assert store.save("run", {"scratch": {"n": 1}}, id=saved.id) == saved
    with pytest.raises(KeyConflict):
        store.save("run", {"scratch": {"n": True}}, id=saved.id)
