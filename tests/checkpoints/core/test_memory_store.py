"""The store in memory keeps the contract, and needs no Django."""

import subprocess
import sys

import pytest

from checkpoints.store import MemoryStore, conformance

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
