"""Confirmations of a signing: how the person who signs has just shown once more who they
are, and whether the gates are content with that.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.urls import NoReverseMatch, reverse

from approvals.models import ApprovalRequest
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import ConfirmationRequired
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.confirmation import (
    PASSKEY,
    WAYS,
    confirmation_needed,
    satisfies,
    strongest,
)


@frozen
class Site:
    """The site that passkeys are for, as a browser knows it: `rp_id` is its host,
    `origin` its scheme, host and port.
    """

    rp_id: str
    origin: str


@frozen
class PostedAssertion:
    """The answer of a passkey, unverified: the id of the challenge that it answers, the
    hash of the session, and what the browser returned, as JSON.
    """

    challenge: UUID
    session: str
    site: Site
    credential: str


@frozen
class Confirmation:
    """The proof that a person has shown in the request in which they sign: `person` is the primary
    key of their account, `method` one of `WAYS`. The assertion of a passkey
    is verified under the run's lock, against what is decided there. A fresh log-in is used
    up there: `session` is the hash of the session in which it was made.
    """

    person: Any
    method: str
    assertion: PostedAssertion | None = None
    session: str = ""


def needed_for(
    request: ApprovalRequest, row: PendingWrite, revised: PendingWrite | None = None
) -> str:
    """Return how a person must confirm a decision on this revision of a write: a
    method, or empty if they need not. `revised` is what their edit makes of it.
    """
    # Both count: an edit is bound to what was seen, and decides what it makes of it.
    values = [read_value(row, "value")]
    if revised is not None:
        values.append(read_value(revised, "value"))
    return confirmation_needed(request.policy, row.channel, values)


def accepted_method(by: Any, confirmation: Confirmation | None) -> str:
    """Return the method of a confirmation, if it is this person's own and shows what it
    says; else empty.
    """
    if confirmation is None or confirmation.person != by.pk:
        return ""
    # Without an assertion there is nothing that was verified.
    if confirmation.method == PASSKEY and confirmation.assertion is None:
        return ""
    return confirmation.method if confirmation.method in WAYS else ""


def own_assertion(by: Any, confirmation: Confirmation | None) -> PostedAssertion | None:
    """Return what this person's passkey is said to have signed; None if it is another's
    or there is none.
    """
    if confirmation is None or accepted_method(by, confirmation) != PASSKEY:
        return None
    return confirmation.assertion


def require_confirmation(
    run: Run,
    by: Any,
    needed: Mapping[UUID, str],
    confirmation: Confirmation | None,
) -> str:
    """Return how this person has confirmed an act; empty if they have not. Raises
    `ConfirmationRequired`, naming the writes and how to confirm, unless that does for
    all writes. `needed`: method by write, empty where none is needed.
    """
    accepted = accepted_method(by, confirmation)
    missing = {
        write: method
        for write, method in needed.items()
        if not satisfies(accepted, method)
    }
    if not missing:
        return accepted
    method = strongest(missing.values())
    raise ConfirmationRequired(
        f"who signs this must confirm it by {method}: sign on the page of the review",
        confirm=method,
        writes=[str(write) for write in missing],
        page=page_of_review(run),
    )


def page_of_review(run: Run) -> str:
    """Return the address of the page on which the writes of a run are signed; empty
    where the pages are not mounted.
    """
    try:
        return reverse("review", args=[run.id])
    except NoReverseMatch:
        return ""
