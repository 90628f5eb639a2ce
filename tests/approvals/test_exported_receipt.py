"""One decision leaves the house as a signed file that any verifier of such envelopes
accepts.
"""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.contrib.auth.models import User
from securesystemslib import dsse, signer

from approvals.exported_receipt import PAYLOAD_TYPE, export_receipt
from approvals.models import Decision
from checkpoints import bundle
from checkpoints.bundle.receipt_verifier import verify_receipt
from checkpoints.models import AuditLine, PendingWrite, Run, RunEvent
from checkpoints.verification.removed_history import (
    RemovedHistory,
    RemovedStretch,
    RemovedStretches,
)
from orchestrator.engine.errors import TamperedRow, UnknownThing
from tests.support import cast
from tests.support.bundles import lines_of, signed_run
from tests.support.doors import Sender, waiting_run
from tests.support.dsse import opened
from tests.support.forging import remove, tamper
from tests.support.paid_claims import claim
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def one_key(configure: Any) -> None:
    configure(**ONE_KEY)


@pytest.fixture
def run(tmp_path: Path, people: cast.People) -> Run:
    return signed_run(tmp_path, people)


def _edit(run: Run) -> Decision:
    return Decision.objects.get(run=run.id, verdict="edit")


def _statement(run: Run, by: User | None = None) -> Any:
    return opened(
        export_receipt(_edit(run).id, by=by), PAYLOAD_TYPE, bundle.public_key()
    )


def test_the_file_tells_who_decided_what_on_what_they_saw_and_what_came_of_it(
    run: Run, people: cast.People
) -> None:
    document = _statement(run, people.reviewer)
    decision = _edit(run)
    assert document["decision"]["by"] == people.reviewer.get_username()
    assert document["decision"]["verdict"] == "edit"
    assert document["decision"]["seen_hash"] == decision.seen_hash
    assert (
        document["write"]["proposed_value"]
        == document["write"]["seen"]["value"]
        == {"amount": "10"}
    )
    assert document["write"]["final_value"] == {"amount": "9"}
    assert document["request"]["policy"]["reviewers"] == ["group:claims"]
    assert document["outcome"]["outcome"] == "approved"
    assert (
        document["outcome"]["applied"]["hash"]
        == RunEvent.objects.get(run=run.id, type="gate_applied").hash
    )


def test_the_file_and_a_bundle_of_the_run_prove_each_other(run: Run) -> None:
    out = io.BytesIO()
    bundle.export(run.id, out)
    lines = {
        line["row"]["seq"]: line["row"]
        for line in lines_of(out.getvalue())
        if line["kind"] == "event"
    }
    document = _statement(run)
    assert lines[document["log"]["seq"]]["hash"] == document["log"]["hash"]
    assert (
        lines[document["log"]["seq"]]["type"]
        == document["log"]["type"]
        == "decision_signed"
    )


def test_a_changed_file_and_another_key_are_refused(run: Run) -> None:
    file = json.loads(export_receipt(_edit(run).id))
    payload = base64.b64decode(file["payload"])
    for changed in (
        {**file, "payload": base64.b64encode(payload.replace(b'"9"', b'"8"')).decode()},
        {**file, "payloadType": PAYLOAD_TYPE + "x"},
    ):
        with pytest.raises(InvalidSignature):
            opened(json.dumps(changed).encode(), PAYLOAD_TYPE, bundle.public_key())
    with pytest.raises(InvalidSignature):
        opened(json.dumps(file).encode(), PAYLOAD_TYPE, b"\x01" * 32)


def test_an_off_the_shelf_verifier_accepts_it(run: Run) -> None:
    envelope = dsse.Envelope.from_dict(json.loads(export_receipt(_edit(run).id)))
    public = Ed25519PublicKey.from_public_bytes(bundle.public_key())
    key = signer.SSlibKey.from_crypto(public, keyid=next(iter(envelope.signatures)))
    assert list(envelope.verify([key], 1)) == [key.keyid]
    envelope.payload += b" "
    with pytest.raises(Exception, match="signatures"):
        envelope.verify([key], 1)


def test_a_decision_through_a_door_is_verified_offline_and_no_bit_may_change() -> None:
    sender = Sender()
    waiting_run()
    sender.send("evt_7", paid=40)
    file = export_receipt(Decision.objects.get().id)
    public_key = bundle.public_key()
    verdict = verify_receipt(file, public_key)
    assert (verdict.ok, verdict.reason) == (True, "")
    document = opened(file, PAYLOAD_TYPE, public_key)
    assert document["decision"]["by"] == sender.account.username
    assert document["decision"]["reason"] == "Message evt_7 at the door bank"
    assert document["write"]["seen"]["value"] is None
    assert document["write"]["final_value"] == 40
    envelope = json.loads(file)
    payload = base64.b64decode(envelope["payload"])
    for place in range(0, len(payload), 97):
        changed = bytearray(payload)
        changed[place] ^= 1
        envelope["payload"] = base64.b64encode(changed).decode()
        assert not verify_receipt(json.dumps(envelope).encode(), public_key).ok


def test_it_is_for_who_signed_and_for_auditors_who_see_the_run(
    run: Run, people: cast.People
) -> None:
    assert (
        _statement(run, people.auditor)["decision"]["by"]
        == people.reviewer.get_username()
    )
    for other in (people.nobody, people.second_reviewer, people.starter):
        with pytest.raises(UnknownThing):
            export_receipt(_edit(run).id, by=other)
    lines = AuditLine.objects.filter(kind="receipt_exported")
    assert [line.actor_name for line in lines] == [people.auditor.get_username()]


def test_who_signed_and_sees_the_run_no_more_gets_no_values(
    run: Run, people: cast.People
) -> None:
    people.reviewer.groups.clear()
    document = _statement(run, User.objects.get(pk=people.reviewer.pk))
    assert document["decision"]["verdict"] == "edit"
    assert document["write"]["final_value"] is None
    assert document["write"]["label"] is None
    assert document["request"]["title"] is None


def test_nothing_of_an_encrypted_run_is_readable_in_it(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people, encrypted=True)
    document = _statement(run)
    assert document["run"]["encrypted"]
    assert (
        document["write"]["final_value"],
        document["write"]["seen"]["shown"],
        document["request"]["facts"],
    ) == (None,) * 3
    assert document["log"]["hash"]


def test_what_needed_nobody_has_a_receipt_too() -> None:
    run = advanced(claim("unasked", needs_approval=lambda state, proposal: False))
    document = opened(
        export_receipt(Decision.objects.get(run=run.id).id),
        PAYLOAD_TYPE,
        bundle.public_key(),
    )
    assert document["decision"]["verdict"] == "not_needed"
    assert document["request"] is None
    assert document["outcome"] is None
    assert document["log"]["type"] == "approval_not_needed"


def test_a_row_that_is_not_as_it_was_sealed_leaves_no_receipt(run: Run) -> None:
    write = _edit(run).write
    tamper(PendingWrite.objects.get(write=write, revision=1), label="pay nobody")
    with pytest.raises(TamperedRow):
        export_receipt(_edit(run).id)


def _proofs(run: Run) -> dict[str, Any]:
    """Rows that a receipt tells of, beside the decision and its request."""
    decision = _edit(run)
    return {
        "the revision that was seen": PendingWrite.objects.get(hash=decision.seen_hash),
        "the line that says it": RunEvent.objects.get(
            run=run.id, seq=decision.event_seq
        ),
        "the line that says it was applied": RunEvent.objects.get(
            run=run.id, type="gate_applied"
        ),
    }


@pytest.mark.parametrize("which", [0, 1, 2])
def test_where_a_row_that_proves_it_is_gone_there_is_no_receipt(
    run: Run, which: int
) -> None:
    what, row = list(_proofs(run).items())[which]
    remove(row)
    with pytest.raises(TamperedRow, match="gone"):
        export_receipt(_edit(run).id)
    assert not AuditLine.objects.filter(kind="receipt_exported").exists(), what


def test_lines_that_were_removed_on_purpose_are_told_as_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [row for row in _proofs(run).values() if isinstance(row, RunEvent)]
    stretch = RemovedStretch(lines[0].seq, lines[1].seq, "", lines[1].hash)
    for row in lines:
        remove(row)
    history = RemovedHistory(events=RemovedStretches([stretch]))
    monkeypatch.setattr(
        "approvals.exported_receipt.removed_history", lambda *_: history
    )
    document = _statement(run)
    assert document["log"] is None
    assert document["outcome"]["applied"] is None
    assert document["outcome"]["status"] == "applied"


@pytest.mark.parametrize(
    "what", ["01890a5d-ac96-774b-bcce-b302099a8057", "nonsense", ""]
)
def test_there_is_no_receipt_of_what_is_no_decision(what: str) -> None:
    with pytest.raises(UnknownThing):
        export_receipt(what)
    assert not AuditLine.objects.exists()
