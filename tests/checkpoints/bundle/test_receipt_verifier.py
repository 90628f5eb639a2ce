"""A receipt is verified offline: its signature, and that its values are those that the
decision was bound to.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from approvals.exported_receipt import export_receipt
from approvals.models import Decision
from checkpoints import bundle, retention
from checkpoints.bundle import receipt_verifier
from checkpoints.bundle.envelope import sealed_envelope
from checkpoints.bundle.receipt_verifier import (
    ERASED,
    HIDDEN,
    PAYLOAD_TYPE,
    UNCOVERED,
    verify_receipt,
)
from checkpoints.models import Run
from orchestrator.engine.values import canonical
from tests.support import cast
from tests.support.bundles import signed_run
from tests.support.dsse import opened
from tests.support.paid_claims import claim
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

Statement = dict[str, Any]


@pytest.fixture(autouse=True)
def one_key(configure: Any) -> None:
    configure(**ONE_KEY)


@pytest.fixture
def run(tmp_path: Path, people: cast.People) -> Run:
    return signed_run(tmp_path, people)


def _receipt(run: Run, verdict: str) -> bytes:
    return export_receipt(Decision.objects.filter(run=run.id, verdict=verdict)[0].id)


def _verdict(file: bytes) -> receipt_verifier.Verdict:
    return verify_receipt(file, bundle.public_key())


def _forged(file: bytes, change: Callable[[Statement], None]) -> bytes:
    """The receipt, changed and signed by the right key."""
    document = opened(file, PAYLOAD_TYPE, bundle.public_key())
    change(document)
    return sealed_envelope(PAYLOAD_TYPE, document)


@pytest.mark.parametrize("verdict", ["edit", "approve"])
def test_a_final_value_that_is_not_the_one_that_was_signed_is_named(
    run: Run, verdict: str
) -> None:
    file = _receipt(run, verdict)
    assert _verdict(file) == (True, 0, "")
    for value in ({"amount": "9999"}, "Dear Mallory", None):
        forged = _forged(
            file,
            lambda statement, value=value: statement["write"].update(final_value=value),
        )
        assert _verdict(forged) == (
            False,
            0,
            "the final value is not the one that was signed",
        )


@pytest.mark.parametrize(
    "column", ["value", "shown", "bound_hash", "policy_hash", "revision"]
)
@pytest.mark.parametrize("revision", ["seen", "signed"])
def test_what_was_seen_or_signed_has_its_hash(
    run: Run, revision: str, column: str
) -> None:
    other = 7 if column == "revision" else "0" * 64
    forged = _forged(
        _receipt(run, "edit"),
        lambda statement: statement["write"][revision].update({column: other}),
    )
    assert _verdict(forged) == (False, 0, f"what was {revision} has another hash")


def _other_revision(statement: Statement) -> None:
    statement["decision"]["revision"] = 1


def _an_edit_told_as_an_approval(statement: Statement) -> None:
    statement["decision"]["verdict"] = "approve"


def _a_rejection_with_a_value(statement: Statement) -> None:
    statement["decision"]["verdict"] = "reject"


def _another_proposal(statement: Statement) -> None:
    statement["write"]["proposed_value"] = {"amount": "1"}


def _hidden_and_shown(statement: Statement) -> None:
    statement["hidden"] = True


def _nobody_asked(statement: Statement) -> None:
    statement["request"] = None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_other_revision, "what was signed is another revision"),
        (_an_edit_told_as_an_approval, "what was approved is not what was seen"),
        (_a_rejection_with_a_value, "a decision to reject has a final value"),
        (_another_proposal, "the proposed value is not the one that was seen"),
        (_hidden_and_shown, "it shows values, though it says that it hides them"),
        (_nobody_asked, "the request that was decided is missing"),
    ],
)
def test_what_does_not_fit_is_named(
    run: Run, change: Callable[[Statement], None], reason: str
) -> None:
    assert _verdict(_forged(_receipt(run, "edit"), change)) == (False, 0, reason)


def test_another_key_and_what_is_no_receipt_are_named(run: Run, tmp_path: Path) -> None:
    file = _receipt(run, "edit")
    assert (
        verify_receipt(file, b"\x01" * 32).reason == "the signature is not of this key"
    )
    assert (
        _verdict(sealed_envelope("application/json", {})).reason == "it is no receipt"
    )
    for nonsense in (
        b"",
        b"[]",
        b"{}",
        json.dumps({"payloadType": PAYLOAD_TYPE}).encode(),
    ):
        assert not _verdict(nonsense).ok
    assert not verify_receipt(tmp_path / "nothing", bundle.public_key()).ok


def test_receipts_that_show_nothing_or_needed_nobody_verify(
    run: Run, people: cast.People
) -> None:
    people.reviewer.groups.clear()
    decision = Decision.objects.get(run=run.id, verdict="edit")
    assert _verdict(
        export_receipt(
            decision.id, by=type(people.reviewer).objects.get(pk=people.reviewer.pk)
        )
    ).ok
    unasked = advanced(claim("unasked", needs_approval=lambda state, proposal: False))
    assert _verdict(_receipt(unasked, "not_needed")).ok


def test_an_erased_value_is_said_to_be_incomparable(
    run: Run, people: cast.People
) -> None:
    retention.erase(run.id, reason="asked", by=people.steward)
    verdict = _verdict(_receipt(run, "edit"))
    assert verdict.ok
    everything = (
        "old value, proposed value, final value, what was seen, what was signed"
    )
    assert verdict.reason.startswith(f"{ERASED}: {everything}")


def _with_tombstone(place: str, name: str) -> Callable[[Statement], None]:
    def change(statement: Statement) -> None:
        side = statement["write"] if place == "write" else statement["write"][place]
        side[name] = {"erased": True, "record": "made up"}

    return change


@pytest.mark.parametrize(
    ("place", "name", "what"),
    [
        ("write", "proposed_value", "proposed value"),
        ("write", "final_value", "final value"),
        ("seen", "value", "what was seen"),
        ("signed", "shown", "what was signed"),
    ],
)
def test_what_a_made_up_tombstone_frees_from_being_compared_is_named(
    run: Run, place: str, name: str, what: str
) -> None:
    forged = _forged(_receipt(run, "edit"), _with_tombstone(place, name))
    verdict = _verdict(forged)
    assert verdict.ok
    assert verdict.reason.startswith(f"{ERASED}: {what}")


def test_texts_beside_an_erased_value_are_said_to_be_unproven(run: Run) -> None:
    def change(statement: Statement) -> None:
        for side in ("seen", "signed"):
            _with_tombstone(side, "value")(statement)
        statement["write"]["label"] = "Pay nothing"

    verdict = _verdict(_forged(_receipt(run, "edit"), change))
    assert verdict.ok
    assert f"{UNCOVERED}: old value, label, title, facts" in verdict.reason


def test_a_receipt_that_hides_its_values_says_that_none_was_compared(run: Run) -> None:
    def hide(statement: Statement) -> None:
        statement["hidden"] = True
        for name in ("label", "old_value", "proposed_value", "final_value"):
            statement["write"][name] = None

    verdict = _verdict(_forged(_receipt(run, "edit"), hide))
    assert (verdict.ok, verdict.reason) == (True, HIDDEN)


def _another_label(statement: Statement) -> None:
    statement["write"]["label"] = "Pay nothing"


def _another_policy(statement: Statement) -> None:
    statement["request"]["policy"]["quorum"] = 2


def _another_policy_with_its_hash(statement: Statement) -> None:
    _another_policy(statement)
    policy = canonical.dumps(statement["request"]["policy"])
    statement["request"]["policy_hash"] = canonical.digest(policy)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_another_label, "the label is not the one that was seen"),
        (_another_policy, "the policy is not the one that was signed under"),
        (
            _another_policy_with_its_hash,
            "the policy is not the one that was signed under",
        ),
    ],
)
def test_label_and_policy_are_those_that_were_signed(
    run: Run, change: Callable[[Statement], None], reason: str
) -> None:
    assert _verdict(_forged(_receipt(run, "edit"), change)) == (False, 0, reason)


@pytest.mark.parametrize(
    ("name", "value"), [("title", "Pay nothing"), ("facts", [{"label": "small"}])]
)
def test_title_and_facts_that_were_not_signed_are_named(
    run: Run, name: str, value: Any
) -> None:
    def change(statement: Statement) -> None:
        statement["request"][name] = value

    verdict = _verdict(_forged(_receipt(run, "edit"), change))
    assert (verdict.ok, verdict.reason) == (True, f"{UNCOVERED}: {name}")


def test_an_old_value_that_was_not_bound_is_named(run: Run) -> None:
    def change(statement: Statement) -> None:
        statement["write"]["old_value"] = {"amount": "1"}

    verdict = _verdict(_forged(_receipt(run, "edit"), change))
    assert (verdict.ok, verdict.reason) == (True, f"{UNCOVERED}: old value")


@pytest.mark.parametrize("name", ["old_value", "proposed_value", "final_value"])
def test_a_receipt_that_lacks_a_value_is_refused(run: Run, name: str) -> None:
    file = _receipt(run, "approve")
    forged = _forged(file, lambda statement: statement["write"].pop(name))
    assert not _verdict(forged).ok
    assert name in _verdict(forged).reason
