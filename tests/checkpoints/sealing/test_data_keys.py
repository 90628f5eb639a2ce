"""A data key for each encrypted run: what it encrypts, how it is wrapped, and what is
left when it is destroyed.
"""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client as Browser

from approvals.models import ApprovalRequest, Decision
from checkpoints import key_rotation, retention, timeline, verification
from checkpoints.conf import keyring
from checkpoints.core.keyring import key_of
from checkpoints.erasure import request
from checkpoints.models import Checkpoint, MemoryTrace, Run, RunKey
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow, WrongKey
from tests.support import cast, dump, erasures, secret_claim
from tests.support.sealed_tables import run_sql
from tests.support.secret_claim import marked
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: cast.People, configure: Any) -> Run:
    """An encrypted run with a row in most tables, that has ended."""
    configure(**secret_claim.keys())
    secret_claim.registered()
    return erasures.whole_story(people)


def keys_of_payloads() -> dict[str, set[str]]:
    """Table -> the ids of the keys that encrypt its payloads."""
    collected: dict[str, set[str]] = {}
    for table, _, data in dump.payloads():
        if data:
            collected.setdefault(table, set()).add(key_of(data))
    return collected


def forget() -> None:
    """Forget all keys, as a new process has none."""
    keyring().data_keys.clear()
    keyring().data_keys_in_use.clear()
    keyring()._ciphers.clear()


def test_the_payloads_of_a_run_are_under_its_own_key_and_that_is_under_the_rings(
    run: Run,
) -> None:
    key_ids = keys_of_payloads()
    own = {f"@{run.id.hex}"}
    assert key_ids.pop("RunKey") == {keyring().encrypter}
    assert key_ids.pop("MemoryTrace") == {keyring().encrypter}, (
        "memory belongs to no run"
    )
    assert {table: keys for table, keys in key_ids.items() if keys != own} == {}
    forget()
    assert verification.verify_run(run.id) == []
    assert timeline.state_at(timeline.list_checkpoints(run.id)[0].id)["scratch"][
        "letter"
    ]


def test_each_run_has_a_key_of_its_own_a_fork_too(
    run: Run, people: cast.People
) -> None:
    fork = runs.fork(f"{run.key}:at-1", by=people.starter)
    assert key_of(bytes(Run.objects.get(id=fork.id).input)) == f"@{fork.id.hex}"
    keys = [
        keyring().open(bytes(row.wrapped), _name(row)) for row in RunKey.objects.all()
    ]
    assert len(keys) == 2
    assert len(set(keys)) == 2
    runs.cancel(fork.id, by=people.starter)
    assert verification.verify_run(fork.id) == []


def _name(row: RunKey) -> bytes:
    from checkpoints.sealing import sealed_rows

    return sealed_rows._name(row, "wrapped")


def test_a_rotation_wraps_the_key_anew_and_touches_no_payload_of_the_run(
    run: Run, configure: Any
) -> None:
    old = secret_claim.keys()["ENCRYPTION_KEYS"]
    before = {row.id: bytes(row.change) for row in Checkpoint.objects.filter(run=run)}
    configure(ENCRYPTION_KEYS={**old, "next": b"n" * 32})
    assert key_rotation.behind().keys() == {
        "checkpoints_runkey",
        "checkpoints_memorytrace",
    }
    for _ in key_rotation.rotate(result := key_rotation.Rotated()):
        pass
    assert result.failed == 0
    assert key_rotation.behind() == {}
    assert {
        row.id: bytes(row.change) for row in Checkpoint.objects.filter(run=run)
    } == before
    assert key_of(bytes(RunKey.objects.get().wrapped)) == "next"
    forget()
    assert read_value(Run.objects.get(id=run.id), "input")["person"]


def test_what_a_backup_kept_of_an_erased_run_opens_no_more(
    run: Run, people: cast.People
) -> None:
    backup = {
        row.pk: bytes(row.proposed_value) for row in Decision.objects.filter(run=run.id)
    }
    input_ = bytes(run.input)
    retention.erase(run.id, by=people.steward)
    assert bytes(RunKey.objects.get().wrapped) == b""
    assert f"@{run.id.hex}" not in {
        key for keys in keys_of_payloads().values() for key in keys
    }
    forget()
    assert verification.verify_run(run.id) == []
    for row in Decision.objects.filter(run=run.id):
        row.proposed_value = backup[row.pk]
        with pytest.raises(WrongKey):
            read_value(row, "proposed_value")
    again = Run.objects.get(id=run.id)
    again.input = input_
    with pytest.raises(WrongKey):
        read_value(again, "input")


def test_a_worker_that_knows_a_key_of_before_destroys_nothing_that_stays(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process begins the erasure and dies; this one has the key at hand as it
    # was in use.
    with monkeypatch.context() as broken:
        broken.setattr(request, "work_on", lambda record: None)
        assert retention.erase(run.id, by=people.steward).ended_at is None
    name = f"@{run.id.hex}"
    assert RunKey.objects.get().retired
    read_value(Run.objects.get(id=run.id), "input")
    keyring().data_keys_in_use[name] = True
    assert name in keyring().data_keys
    retention.erase(run.id, by=people.steward)
    assert name not in {key for keys in keys_of_payloads().values() for key in keys}
    forget()
    assert verification.verify_run(run.id) == []
    assert timeline.state_at(timeline.list_checkpoints(run.id)[0].id)["scratch"]


def test_a_key_under_which_something_still_stands_is_not_destroyed(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(data_keys, "key_for", lambda row: f"@{run.id.hex}")
        with pytest.raises(WrongKey, match="still encrypted"):
            retention.erase(run.id, by=people.steward)
    assert bytes(RunKey.objects.get().wrapped)
    assert timeline.state_at(timeline.list_checkpoints(run.id)[0].id)["scratch"]


def test_a_damaged_row_that_names_no_run_is_refused_by_name(run: Run) -> None:
    head = Checkpoint.objects.get(id=run.head)
    stored = bytes(head.change)
    nonsense = stored[:2] + b"@" + b"z" * (stored[1] - 1) + stored[2 + stored[1] :]
    with pytest.raises(TamperedRow, match="names no key of a run"):
        sealed_rows.decrypted(head, "change", nonsense)


def test_a_list_of_encrypted_runs_asks_for_their_keys_once(
    people: cast.People, configure: Any
) -> None:
    configure(**secret_claim.keys())
    secret_claim.registered()
    people.reviewer.groups.add(Group.objects.get_or_create(name="claims")[0])
    for n in range(3):
        run = runs.advance(
            runs.start("secret_claim", {"person": "Ada"}, by=people.starter).id
        )
        runs.cancel(run.id, by=people.starter, reason=marked("why")) if n else None
        Run.objects.filter(id=run.id).update(
            progress=sealed_rows.encrypted(
                run, "progress", pack_json({"done": n}), protection_of(run)
            )
        )
    Run.objects.exclude(status="paused").update(status="running")
    ApprovalRequest.objects.update(status="open")
    rita = Browser()
    anna = Browser()
    rita.force_login(people.reviewer)
    anna.force_login(people.auditor)
    api = "/api/v1"
    lists = [
        (rita, "/reviews/"),
        (rita, f"{api}/requests/"),
        (anna, "/runs/"),
        (anna, f"{api}/runs/"),
        (anna, "/audit/"),
    ]
    for browser, address in lists:
        assert browser.get(address).status_code == 200
        forget()
        with counted() as sent:
            body = browser.get(address).content.decode()
        asked = [sql for sql in sent if "checkpoints_runkey" in sql]
        assert "cannot be opened" not in body
        assert len(asked) == 1, address
        with counted() as again:
            browser.get(address)
        assert not [sql for sql in again if "checkpoints_runkey" in sql]


def test_a_run_that_began_without_a_key_of_its_own_opens_and_goes_on(
    run: Run, people: cast.People
) -> None:
    runs_before = Run.objects.count()
    second = runs.start("secret_claim", {"person": "Ada"}, by=people.starter)
    run_sql("DELETE FROM checkpoints_runkey WHERE id = %s", _stored(second))
    forget()
    with pytest.raises(WrongKey):
        read_value(Run.objects.get(id=second.id), "input")
    assert Run.objects.count() == runs_before + 1
    assert MemoryTrace.objects.exists()


def _stored(run: Run) -> Any:
    from django.db import connection

    return run.id.hex if connection.vendor == "sqlite" else run.id
