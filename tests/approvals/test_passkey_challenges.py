"""A passkey signs exactly what is decided: every assertion over anything else, by anybody
else, or a second time, is refused, and changes nothing.
"""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import passkeys, reviews
from approvals.confirmation import Confirmation, Site
from approvals.exported_receipt import export_receipt
from approvals.models import (
    BY_DEADLINE,
    Decision,
    Passkey,
    PasskeyChallenge,
    Receipt,
)
from checkpoints import bundle, retention
from checkpoints.bundle.envelope import sealed_envelope
from checkpoints.bundle.receipt_verifier import ERASED, PAYLOAD_TYPE, verify_receipt
from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import (
    ConfirmationRequired,
    InvalidValue,
    StaleProposal,
    TamperedRow,
)
from tests.support import authenticators, cast, run_actions
from tests.support.authenticators import PRESENT, SESSION, SITE, Authenticator
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import pending
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

ELSEWHERE = Site("evil.example", "https://evil.example")


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def run() -> Run:
    return advanced(gated(confirm="passkey"))


@pytest.fixture
def authenticator(rita: User) -> Authenticator:
    return authenticators.registered(rita)[0]


def challenged(run: Run, by: User, items: Any = None) -> dict[str, Any]:
    return reviews.passkey_challenge(
        run.id, items or items_of(run), by=by, site=SITE, session=SESSION
    )


def sign(run: Run, by: User, confirmation: Confirmation, items: Any = None) -> Receipt:
    return reviews.sign(
        run.id, items or items_of(run), by=by, confirmation=confirmation
    )


def signed(
    run: Run, by: User, authenticator: Authenticator, **options: Any
) -> Decision:
    items = items_of(run, **options)
    challenge = challenged(run, by, items)
    credential = authenticator.sign(challenge["options"])
    sign(run, by, authenticators.confirmation(by, challenge, credential), items)
    return Decision.objects.latest("at")


def assert_refused(
    run: Run, by: User, confirmation: Confirmation, reason: str, items: Any = None
) -> None:
    with pytest.raises(ConfirmationRequired) as refused:
        sign(run, by, confirmation, items)
    assert refused.value.facts["reason"] == reason
    assert not Decision.objects.exists()
    assert not Receipt.objects.exists()
    assert run_actions.request(run).status == "open"
    line = AuditLine.objects.filter(kind="refused_confirmation").latest("id")
    assert (line.actor, line.run, line.facts["reason"]) == (by, run.id, reason)
    assert verify_run(run.id) == []


def test_what_a_passkey_signed_is_decided_and_kept(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    decision = signed(run, rita, authenticator)
    assert decision.confirmed_by == "passkey"
    receipt = decision.receipt
    assert receipt is not None
    assert receipt.assertion is not None
    document = receipt.assertion["document"]
    (row,) = pending(run)
    assert document["decisions"] == [
        {
            "request": str(decision.request_id),
            "write": str(row.write),
            "revision": 1,
            "hash": row.hash,
            "verdict": "approve",
        }
    ]
    assert document["by"] == "rita"
    key = Passkey.objects.get()
    assert key.sign_count == 1
    assert key.used_at is not None
    assert not PasskeyChallenge.objects.exists()
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []
    receipt.assertion = None
    with pytest.raises(TamperedRow):
        sealed_rows.verify_row(receipt, PLAIN)


def test_without_an_assertion_the_word_alone_does_nothing(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    for confirmation in (None, Confirmation(rita.pk, "passkey")):
        with pytest.raises(ConfirmationRequired):
            reviews.sign(run.id, items_of(run), by=rita, confirmation=confirmation)
    assert not Decision.objects.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"verdict": "reject"},
        {"verdict": "edit", "value": {"amount": "1"}},
        {"reason": "for another reason"},
    ],
)
def test_an_assertion_over_other_content_is_refused(
    run: Run, rita: User, authenticator: Authenticator, other: dict[str, Any]
) -> None:
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "other_content", items_of(run, **other))


def test_an_edit_of_another_value_is_refused(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    mine = items_of(run, verdict="edit", value={"amount": "1"})
    challenge = challenged(run, rita, mine)
    credential = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    other = items_of(run, verdict="edit", value={"amount": "2"})
    assert_refused(run, rita, confirmation, "other_content", other)


def test_an_assertion_over_another_run_is_refused(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    other = advanced(gated("another", confirm="passkey"))
    challenge = challenged(other, rita)
    credential = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "other_content")


def test_a_challenge_of_ones_own_making_is_refused(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    challenge = challenged(run, rita)
    forged = authenticators.to_text(b"x" * 32)
    credential = authenticator.sign(challenge["options"], challenge=forged)
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "not_verified")


def test_the_key_of_another_person_is_refused(
    run: Run, rita: User, people: cast.People, authenticator: Authenticator
) -> None:
    theirs, _ = authenticators.registered(people.second_reviewer)
    challenge = challenged(run, rita)
    credential = theirs.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "no_key")


def test_the_challenge_of_another_person_or_session_is_refused(
    run: Run, rita: User, people: cast.People, authenticator: Authenticator
) -> None:
    ravi = run_actions.reviewer(people.second_reviewer)
    authenticators.registered(ravi)
    challenge = challenged(run, ravi)
    credential = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "no_challenge")
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    other = authenticators.confirmation(rita, challenge, credential, session="b" * 64)
    assert_refused(run, rita, other, "no_challenge")


def test_a_revoked_key_signs_nothing_and_stays_revoked(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    key = Passkey.objects.get()
    passkeys.revoke_key(rita, key.id)
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "no_key")
    with pytest.raises(InvalidValue, match="you have no passkey"):
        challenged(run, rita)
    # Who brings it back in the database finds that its seal does not hold.
    Passkey.objects.update(revoked_at=None)
    assert_refused(run, rita, confirmation, "tampered_key")


def test_a_revoked_key_whose_whole_old_row_came_back_signs_nothing(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    [old] = Passkey.objects.values()
    passkeys.revoke_key(rita, old["id"])
    # Row and seal are both of before.
    Passkey.objects.filter(id=old["id"]).update(**old)
    sealed_rows.verify_row(Passkey.objects.get(), PLAIN)
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "tampered_key")


def test_a_key_that_somebody_put_into_the_database_signs_nothing(
    run: Run, rita: User, people: cast.People, authenticator: Authenticator
) -> None:
    theirs, key = authenticators.registered(people.second_reviewer)
    Passkey.objects.filter(id=key.id).update(user=rita)
    challenge = challenged(run, rita)
    credential = theirs.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "tampered_key")
    run.refresh_from_db()
    assert run.status == "paused"


def test_an_assertion_that_was_used_signs_nothing_again(
    rita: User, authenticator: Authenticator
) -> None:
    run = advanced(gated(confirm="passkey", quorum=2))
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(rita, challenge, credential)
    sign(run, rita, confirmation)
    with pytest.raises(ConfirmationRequired) as refused:
        sign(run, rita, confirmation)
    assert refused.value.facts["reason"] == "no_challenge"
    assert Decision.objects.count() == 1


@pytest.mark.parametrize("counter", [1, 0])
def test_a_counter_that_did_not_rise_is_refused(
    rita: User, authenticator: Authenticator, counter: int
) -> None:
    first = advanced(gated("first", confirm="passkey"))
    signed(first, rita, authenticator)
    second = advanced(gated("second", confirm="passkey"))
    challenge = challenged(second, rita)
    authenticator.count = counter - 1
    credential = authenticator.sign(challenge["options"])
    with pytest.raises(ConfirmationRequired, match="sign count") as refused:
        sign(second, rita, authenticators.confirmation(rita, challenge, credential))
    # It is said once that the passkey was not accepted.
    assert refused.value.message.count("not accepted") == 1
    assert Decision.objects.count() == 1
    assert Passkey.objects.get().sign_count == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"site": ELSEWHERE},
        {"site": Site("localhost", "https://evil.example")},
        {"site": Site("evil.example", "http://localhost")},
        {"flags": PRESENT},
        {"flags": 0},
    ],
)
def test_another_site_and_an_unverified_person_are_refused(
    run: Run, rita: User, authenticator: Authenticator, wrong: dict[str, Any]
) -> None:
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"], **wrong)
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "not_verified")


def test_a_signature_with_one_bit_changed_is_refused(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    signature = bytearray(authenticators.to_bytes(credential["response"]["signature"]))
    signature[-1] ^= 1
    credential["response"]["signature"] = authenticators.to_text(bytes(signature))
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "not_verified")


@pytest.mark.parametrize("credential", [None, [], {}, {"id": 1}, {"id": "x" * 5000}])
def test_what_is_no_assertion_at_all_is_refused(
    run: Run, rita: User, authenticator: Authenticator, credential: Any
) -> None:
    challenge = challenged(run, rita)
    confirmation = authenticators.confirmation(rita, challenge, credential)
    with pytest.raises(ConfirmationRequired):
        sign(run, rita, confirmation)
    assert not Decision.objects.exists()


def test_an_answer_that_comes_too_late_is_refused(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    challenge = challenged(run, rita)
    credential = authenticator.sign(challenge["options"])
    PasskeyChallenge.objects.update(created_at=timezone.now() - timedelta(minutes=6))
    confirmation = authenticators.confirmation(rita, challenge, credential)
    assert_refused(run, rita, confirmation, "too_late")


def test_what_moved_after_the_challenge_is_refused_as_stale(
    rita: User, people: cast.People, authenticator: Authenticator
) -> None:
    run = advanced(gated(confirm="passkey", quorum=2))
    ravi = run_actions.reviewer(people.second_reviewer)
    items = items_of(run)
    challenge = challenged(run, rita, items)
    credential = authenticator.sign(challenge["options"])
    theirs, _ = authenticators.registered(ravi)
    signed(run, ravi, theirs, verdict="edit", value={"amount": "1"})
    with pytest.raises(StaleProposal):
        sign(run, rita, authenticators.confirmation(rita, challenge, credential), items)
    assert Decision.objects.count() == 1


def test_below_the_limit_no_passkey_is_asked_for(rita: User) -> None:
    run = advanced(gated(amount="10", confirm="passkey", confirm_above=5000))
    assert challenged(run, rita) == {}
    reviews.sign(run.id, items_of(run), by=rita)
    assert Decision.objects.get().confirmed_by == ""


def test_a_passkey_does_where_a_password_is_asked_for(
    rita: User, authenticator: Authenticator
) -> None:
    run = advanced(gated(confirm="password"))
    assert signed(run, rita, authenticator).confirmed_by == "passkey"


# Receipts that leave the house.


@pytest.fixture
def receipt(
    run: Run, rita: User, authenticator: Authenticator
) -> tuple[bytes, dict[str, Any]]:
    decision = signed(run, rita, authenticator, reason="it is due")
    file = export_receipt(decision.id, by=rita)
    payload = json.loads(file)["payload"]
    return file, json.loads(base64.b64decode(payload))


def test_a_receipt_verifies_offline_with_the_fingerprint_that_its_reader_knows(
    receipt: tuple[bytes, dict[str, Any]],
) -> None:
    file, _ = receipt
    fingerprint = Passkey.objects.get().fingerprint
    assert verify_receipt(file, bundle.public_key()).ok
    assert verify_receipt(file, bundle.public_key(), passkey=fingerprint).ok
    other = verify_receipt(file, bundle.public_key(), passkey="0" * 64)
    assert (other.ok, other.reason) == (False, "another passkey signed it")


@pytest.mark.parametrize("confirmed_by", ["", "password"])
def test_a_receipt_without_the_passkey_that_its_gate_asked_for_fails(
    receipt: tuple[bytes, dict[str, Any]], confirmed_by: str
) -> None:
    _, content = receipt
    content["assertion"] = None
    content["decision"]["confirmed_by"] = confirmed_by
    forged = sealed_envelope(PAYLOAD_TYPE, content)
    verdict = verify_receipt(forged, bundle.public_key())
    assert not verdict.ok
    assert verdict.reason == (
        "the gate asked for a passkey, and there is none in this receipt"
    )


def test_a_receipt_that_names_another_person_for_whom_it_was_signed_fails(
    receipt: tuple[bytes, dict[str, Any]],
) -> None:
    _, content = receipt
    content["decision"]["delegator"] = "ravi"
    forged = sealed_envelope(PAYLOAD_TYPE, content)
    verdict = verify_receipt(forged, bundle.public_key())
    assert (verdict.ok, verdict.reason) == (
        False,
        "its passkey signed another decision",
    )


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_receipt_below_the_limit_needs_no_passkey(
    rita: User, configure: Any, encrypted: bool
) -> None:
    configure(ENCRYPTION_KEYS={"first": b"k" * 32})
    options = {"amount": "10", "confirm": "passkey", "confirm_above": 5000}
    run = advanced(gated("below", encrypted=encrypted, **options))
    reviews.sign(run.id, items_of(run), by=rita)
    file = export_receipt(Decision.objects.get().id)
    verdict = verify_receipt(file, bundle.public_key())
    assert verdict.ok
    # What is hidden may have been above.
    assert ("nobody can say" in verdict.reason) == encrypted


def test_a_receipt_of_the_deadline_needs_no_passkey(
    receipt: tuple[bytes, dict[str, Any]],
) -> None:
    _, content = receipt
    content["assertion"] = None
    content["decision"] |= {"confirmed_by": "", "by": BY_DEADLINE}
    file = sealed_envelope(PAYLOAD_TYPE, content)
    assert verify_receipt(file, bundle.public_key()).ok


def test_a_receipt_whose_reason_was_erased_says_so(
    run: Run, rita: User, authenticator: Authenticator, people: cast.People
) -> None:
    decision = signed(run, rita, authenticator, reason="it is due")
    runs.cancel(run.id)
    retention.erase(run.id, reason="asked", by=people.steward)
    verdict = verify_receipt(export_receipt(decision.id), bundle.public_key())
    assert verdict.ok
    assert verdict.reason.startswith(ERASED)
    assert "reason" in verdict.reason


def test_a_receipt_of_an_edit_verifies_offline(
    run: Run, rita: User, authenticator: Authenticator
) -> None:
    decision = signed(
        run, rita, authenticator, verdict="edit", value={"amount": "7000"}
    )
    assert verify_receipt(export_receipt(decision.id), bundle.public_key()).ok


def _other_bit(name: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        data = bytearray(base64.b64decode(content["assertion"][name]))
        data[len(data) // 2] ^= 1
        content["assertion"][name] = base64.b64encode(data).decode()

    return change


def _without_assertion(content: dict[str, Any]) -> None:
    content["assertion"] = None


def _without_passkey(content: dict[str, Any]) -> None:
    content["assertion"] = None
    content["decision"]["confirmed_by"] = ""


def _of_somebody_else(content: dict[str, Any]) -> None:
    content["decision"]["by"] = "ravi"


def _with_another_reason(content: dict[str, Any]) -> None:
    content["decision"]["reason"] = "it is late"


def _rejected(content: dict[str, Any]) -> None:
    content["decision"]["verdict"] = "reject"
    content["write"]["final_value"] = None


def _with_another_document(content: dict[str, Any]) -> None:
    content["assertion"]["document"]["decisions"][0]["verdict"] = "reject"
    _rejected(content)


@pytest.mark.parametrize(
    "change",
    [
        *map(
            _other_bit, ("client_data", "authenticator_data", "signature", "public_key")
        ),
        _without_assertion,
        _without_passkey,
        _of_somebody_else,
        _with_another_reason,
        _rejected,
        _with_another_document,
    ],
)
def test_a_receipt_that_the_house_itself_forged_fails(
    receipt: tuple[bytes, dict[str, Any]], change: Callable[[dict[str, Any]], None]
) -> None:
    _, content = receipt
    fingerprint = Passkey.objects.get().fingerprint
    change(content)
    # Whoever has all keys of the house can sign the file anew, and not the decision.
    forged = sealed_envelope(PAYLOAD_TYPE, content)
    assert not verify_receipt(forged, bundle.public_key(), passkey=fingerprint).ok
