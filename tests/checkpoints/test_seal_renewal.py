"""`seal_anew`: the rows of an older release get the seals of this one, once, and nothing
that was changed before gets one.
"""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from approvals import append_only
from approvals.models import Decision
from checkpoints import retention, seal_renewal
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.ledger import locked_run
from checkpoints.models import (
    AuditHead,
    AuditLine,
    Checkpoint,
    ErasedRow,
    ErasureRecord,
    OlderSeals,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.sealing import older_seals, sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, protection_of
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import OlderSeal, TamperedRow, WrongKey
from tests.support import cast, erasures, secret_claim
from tests.support.forging import tamper
from tests.support.full_installation import a_full_run
from tests.support.older_release import older_release
from tests.support.small_graphs import graph, registered, started

pytestmark = pytest.mark.django_db(transaction=True)


def seal_anew(**options: Any) -> str:
    out = StringIO()
    call_command("seal_anew", stdout=out, **options)
    return out.getvalue()


def verified() -> Any:
    out = StringIO()
    try:
        call_command("verify_runs", as_json=True, stdout=out)
    except CommandError:
        # The rows say more than the command's last line.
        if not out.getvalue():
            raise
    return json.loads(out.getvalue())


@pytest.fixture
def heads(tmp_path: Path, configure: Any) -> Path:
    """The file of `AUDIT_HEAD_FILE`."""
    path = tmp_path / "heads.jsonl"
    configure(AUDIT_HEAD_FILE=str(path))
    return path


def a_run() -> Run:
    flow = graph("older")
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.node("second")(lambda state, ctx: {"notes": ["second"]})
    flow.edge(START, "first")
    flow.edge("first", "second")
    flow.edge("second", END)
    return runs.advance(started(registered(flow)).id)


def older_run() -> Run:
    return older_runs(1)[0]


def older_runs(count: int) -> list[Run]:
    with older_release():
        audit_log.record("runs_verified", actor=None, checked=1, failed=0)
        older = [a_run() for _ in range(count)]
        audit_chain.keep_head(AuditHead.objects.get(), audit_chain.ChainHead())
        audit_chain.chain_lines()
    return older


@pytest.mark.parametrize("encrypted", [False, True])
def test_every_row_of_an_older_release_is_sealed_anew_and_verifies(
    encrypted: bool,
    people: cast.People,
    configure: Any,
    tmp_path: Path,
) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    with older_release():
        a_full_run(tmp_path, people.reviewer)
        erased = erasures.whole_story(people)
        fork = runs.fork(f"{erased.key}:at-1", by=people.starter)
        runs.cancel(fork.id, by=people.starter)
        retention.erase(erased.id, ["payout.memo"], by=people.steward)
        retention.erase(erased.id, by=people.steward)
        assert verify_run(erased.id) == []
        audit_chain.keep_head(AuditHead.objects.get(), audit_chain.ChainHead())
        audit_chain.chain_lines()
    hashes = list(
        ErasureRecord.objects.order_by("id").values_list("rows_hash", flat=True)
    )

    counts = json.loads(seal_anew(as_json=True))["rows"]

    for model in (Checkpoint, RunEvent, Decision, TaskResult, ErasedRow, AuditLine):
        assert counts[model._meta.db_table] > 0
    assert verified()["bad"] == []
    assert not OlderSeals.objects.exists()
    assert append_only.missing_triggers() == []
    records = ErasureRecord.objects.order_by("id")
    assert list(records.values_list("origin_rows_hash", flat=True)) == hashes
    assert len(hashes) == 2


def test_the_audit_log_says_that_its_rows_were_sealed_anew_and_its_chain_goes_on(
    heads: Path, people: cast.People
) -> None:
    older_run()
    before = audit_chain.last_told_head()
    assert before is not None
    seal_anew(by=people.steward.username)
    line = AuditLine.objects.get(kind="seals_renewed")
    assert line.actor_name == people.steward.username
    assert line.facts["told_hash"] == before.hash
    assert line.facts["rows"]["checkpoints_runevent"] > 0
    assert verified()["bad"] == []
    audit_log.record("runs_verified", actor=None, checked=1, failed=0)
    assert audit_chain.chain_lines() == 1
    assert verified()["bad"] == []
    assert len(heads.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        (RunEvent, {"actor": "mallory"}),
        (Checkpoint, {"content_hash": "0" * 64}),
        (AuditLine, {"actor_name": "mallory"}),
    ],
)
def test_a_row_that_was_changed_is_named_and_gets_no_new_seal(
    model: Any, changed: dict[str, str]
) -> None:
    older_run()
    rows = model.objects.order_by("pk")
    row = rows.last()
    tamper(row, **changed)
    first_seal = bytes(rows[0].seal or b"")
    with pytest.raises(CommandError) as refused:
        seal_anew()
    assert sealed_rows.name_of(row) in str(refused.value)
    assert "is not as it was sealed" in str(refused.value)
    assert bytes(model.objects.get(pk=rows[0].pk).seal or b"") == first_seal
    assert OlderSeals.objects.exists()
    assert not AuditLine.objects.filter(kind="seals_renewed").exists()


def test_a_row_that_was_changed_can_be_left_and_its_run_alone_is_tampered_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sound, changed = older_runs(2)
    event = RunEvent.objects.filter(run=changed.id).latest("seq")
    older_seal = bytes(event.seal)
    tamper(event, type="run_failed")
    with pytest.raises(CommandError, match="1 row did not verify"):
        seal_anew(leave_tampered=True)
    assert f"{sealed_rows.name_of(event)} is not as it was" in capsys.readouterr().err

    assert bytes(RunEvent.objects.get(pk=event.pk).seal) == older_seal
    assert not OlderSeals.objects.exists()
    assert AuditLine.objects.get(kind="seals_renewed").facts["tampered"] == 1
    assert verify_run(sound.id) == []
    assert verify_run(changed.id) != []
    # Once only: nothing makes the older seal count afterwards.
    assert "nothing was done" in seal_anew(leave_tampered=True)


def test_a_missing_key_is_no_reason_to_leave_a_row(configure: Any) -> None:
    configure(SIGNING_KEYS={"one": b"1" * 32})
    older_run()
    configure(SIGNING_KEYS={"two": b"2" * 32})
    with pytest.raises(CommandError, match="'one' is not configured"):
        seal_anew(leave_tampered=True)
    assert OlderSeals.objects.exists()


def test_a_renewal_that_was_interrupted_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = older_run()
    monkeypatch.setattr(seal_renewal, "BATCH_ROWS", 2)
    steps = seal_renewal.seal_anew(
        seal_renewal.Renewed(),
        by=None,
        triggers_lifted=lambda table: append_only.triggers_lifted(),
    )
    for step in steps:
        if step.rows.get("checkpoints_runevent"):
            steps.close()
            break
    seals = dict(RunEvent.objects.values_list("id", "seal"))
    protection = protection_of(run)
    done = [row for row in RunEvent.objects.all() if fault_of(row, protection) is None]
    assert 0 < len(done) < len(seals)
    counts = json.loads(seal_anew(as_json=True))["rows"]
    assert counts["checkpoints_runevent"] == len(seals) - len(done)
    assert verified()["bad"] == []


def test_a_head_that_was_told_and_is_gone_is_named_first(heads: Path) -> None:
    older_run()
    lines = heads.read_text()
    heads.write_text(json.dumps({"number": 1, "hash": "0" * 64}) + "\n" + lines)
    with pytest.raises(CommandError, match="was told outside the database"):
        seal_anew()


@pytest.mark.parametrize("column", ["hash", "number"])
def test_a_chain_that_does_not_hold_is_not_chained_anew(column: str) -> None:
    older_run()
    line = AuditLine.objects.filter(number__isnull=False).order_by("number").first()
    assert line is not None
    tamper(line, **{column: {"hash": "0" * 64, "number": 9}[column]})
    with pytest.raises(CommandError, match="is not chained to the line before"):
        seal_anew()


def test_lines_that_were_removed_from_the_end_of_the_chain_are_missed() -> None:
    older_run()
    AuditLine.objects.order_by("number").last().delete()  # type: ignore[union-attr]
    with pytest.raises(CommandError, match="the audit log was chained up to line"):
        seal_anew()


def test_rows_of_an_erasure_that_were_changed_or_removed_are_missed_first(
    people: cast.People,
) -> None:
    secret_claim.registered(encrypted=False)
    with older_release():
        run = erasures.whole_story(people)
        retention.erase(run.id, by=people.steward)
        audit_chain.keep_head(AuditHead.objects.get(), audit_chain.ChainHead())
    erased_row = ErasedRow.objects.latest("id")
    tamper(erased_row, contents={"forged": "0" * 64})
    with pytest.raises(CommandError, match="erasedrow .* is not as it was sealed"):
        seal_anew()
    tamper(erased_row, contents=erased_row.contents)
    erased_row.delete()
    with pytest.raises(CommandError, match="lists other rows than when it ended"):
        seal_anew()


def test_rows_are_sealed_anew_once(heads: Path) -> None:
    older_run()
    seal_anew()
    assert "nothing was done" in seal_anew()
    with older_release():
        pass
    with pytest.raises(CommandError, match="sealed anew on .* already"):
        seal_anew()


def test_an_older_seal_does_not_pass_for_one_of_today() -> None:
    run = older_run()
    row = RunEvent.objects.filter(run=run).latest("id")
    older = bytes(row.seal or b"")
    seal_anew()
    tamper(row, seal=older)
    row.refresh_from_db()
    with pytest.raises(TamperedRow):
        sealed_rows.verify_row(row, protection_of(run))


def test_until_then_no_row_is_called_tampered_and_the_run_stays_as_it_is() -> None:
    run = older_run()
    row = RunEvent.objects.filter(run=run).latest("id")
    with pytest.raises(OlderSeal, match="`manage.py seal_anew`"):
        sealed_rows.verify_row(row, protection_of(run))
    with pytest.raises(CommandError, match="`manage.py seal_anew`"):
        verified()
    assert {fault.code for fault in verify_run(run.id)} == {"older_seal"}
    assert not locked_run.mark_tampered(run.id, OlderSeal("older"), ended=True)
    run.refresh_from_db()
    assert run.status == "completed"


@pytest.mark.parametrize("format_", [1, 2])
def test_an_older_seal_covers_what_its_format_did(format_: int) -> None:
    run = older_run()
    row = Checkpoint.objects.filter(run=run, seq=0).get()
    data = older_seals._covered(row, PLAIN, (), format_)
    mac = older_seals.keyring().mac(row.seal_key, data)
    row.seal = mac if format_ == 1 else b"\x02" + mac
    older_seals.verify_older(row, PLAIN)
    for column, value in {"anchor": 7, "snapshot_hash": "0" * 64, "seq": 7}.items():
        before = getattr(row, column)
        setattr(row, column, value)
        if column == "anchor" and format_ == 2:
            older_seals.verify_older(row, PLAIN)
        else:
            with pytest.raises(TamperedRow):
                older_seals.verify_older(row, PLAIN)
        setattr(row, column, before)
    row.seal = b""
    with pytest.raises(TamperedRow, match="has no seal"):
        older_seals.verify_older(row, PLAIN)


def test_a_key_that_is_missing_or_compromised_is_named(configure: Any) -> None:
    configure(SIGNING_KEYS={"one": b"1" * 32})
    run = older_run()
    row = RunEvent.objects.filter(run=run).latest("id")
    configure(SIGNING_KEYS={"two": b"2" * 32})
    with pytest.raises(WrongKey, match="'one' is not configured"):
        older_seals.verify_older(row, PLAIN)
    with pytest.raises(CommandError, match="'one' is not configured"):
        seal_anew()
    configure(
        SIGNING_KEYS={"one": b"1" * 32, "two": b"2" * 32},
        COMPROMISED_KEYS={"one": row.at},
    )
    with pytest.raises(CommandError, match="compromised since"):
        seal_anew()
