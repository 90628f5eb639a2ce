"""Asking people with a callback: the address that is called with what came of it."""

from typing import Any

from django.db import transaction

from approvals.webhooks import callbacks
from orchestrator.asking.approval import Approval
from orchestrator.asking.verbs import Inquiry, ask_for
from orchestrator.engine.frozen import frozen


@frozen
class NewApproval:
    """An approval as its POST is answered. `is_new` says whether this call asked; `secret`
    is that of the callback, shown this once.
    """

    approval: Approval
    is_new: bool
    secret: str = ""


def ask_with_callback(
    inquiry: Inquiry,
    *,
    callback: str | None,
    key: str | None = None,
    by: Any,
    on_behalf_of: str | None = None,
) -> NewApproval:
    """Ask as `ask_for` does, and bind the address of a callback to the approval; None
    for none. Raises what `ask_for` raises, `InvalidValue` for an address that is not
    allowed, and `KeyConflict` where the approval of this key has another callback.
    """
    with transaction.atomic():
        approval, is_new = ask_for(inquiry, key=key, by=by, on_behalf_of=on_behalf_of)
        secret = ""
        if not is_new:
            callbacks.require_same(approval.run, callback)
        elif callback is not None:
            secret = callbacks.add_callback(approval.run, callback, by=by)
    return NewApproval(approval, is_new, secret)
