"""A run that a passkey signed, and what could be said of that which is not so."""

import base64
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import Decision
from checkpoints.models import Run
from orchestrator import runs
from tests.support import authenticators
from tests.support.authenticators import SESSION, SITE
from tests.support.confirmed_graphs import gated, items_of
from tests.support.small_graphs import advanced

Assertion = dict[str, Any]


def passkey_run(by: User, *, confirm: str = "passkey", **options: Any) -> Run:
    """A run that a person's passkey let go on to its end, with an edit and a reason."""
    authenticator, _ = authenticators.registered(by)
    run = advanced(gated("by_passkey", confirm=confirm, **options))
    reason = "it is due"
    items = items_of(run, verdict="edit", value={"amount": "7000"}, reason=reason)
    challenge = reviews.passkey_challenge(
        run.id, items, by=by, site=SITE, session=SESSION
    )
    answer = authenticator.sign(challenge["options"])
    confirmation = authenticators.confirmation(by, challenge, answer)
    reviews.sign(run.id, items, by=by, confirmation=confirmation)
    run = runs.advance(run.id)
    assert run.status == "completed", run.status
    return run


def decision_of(run: Run) -> Decision:
    return Decision.objects.get(run=run.id)


def other_bit(name: str) -> Callable[[Assertion], None]:
    """Return a change of one bit in a part of the assertion."""

    def change(assertion: Assertion) -> None:
        data = bytearray(base64.b64decode(assertion[name]))
        data[len(data) // 2] ^= 1
        assertion[name] = base64.b64encode(data).decode()

    return change


def another_line(**facts: Any) -> Callable[[Assertion], None]:
    """Change what the document says of the decision."""

    def change(assertion: Assertion) -> None:
        assertion["document"]["decisions"][0] |= facts

    return change


def another_fingerprint(assertion: Assertion) -> None:
    assertion["fingerprint"] = "0" * 64


FORGED_ASSERTIONS = [
    other_bit("client_data"),
    other_bit("authenticator_data"),
    other_bit("signature"),
    another_line(verdict="approve"),
    another_line(value_hash="0" * 64),
    another_fingerprint,
]
