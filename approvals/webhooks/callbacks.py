"""Callbacks: the address, named by whoever asks for an approval, that receives its
outcome. A callback is a webhook of this run alone, and never changes.

This installation sends to whatever is named, so the settings list the allowed hosts.
"""

from typing import Any
from uuid import UUID

from approvals.list_columns import EXPIRED, OF_RUN, SETTLED
from approvals.models import Webhook
from approvals.webhooks import verbs
from approvals.webhooks.address import read_address
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue, KeyConflict, UnknownThing

EVENTS = (
    SETTLED,
    EXPIRED,
    f"{OF_RUN}{Status.CANCELLED}",
    f"{OF_RUN}{Status.FAILED}",
)
"""The events that are sent to a callback."""
PATH = "callback.url"


def require_allowed(url: Any) -> str:
    """Return the host of an address that callbacks may use, with its port unless that
    is the default. Raises `InvalidValue`, which quotes no part of the address.
    """
    try:
        host = read_address(url).named_host
    except InvalidValue as error:
        raise InvalidValue(error.message, path=PATH) from None
    if host not in conf().callback_hosts:
        raise InvalidValue("the settings allow no callback to this host", path=PATH)
    return host


def add_callback(run: Run, url: str, *, by: Any) -> str:
    """Add the callback of a run that was just started, in the caller's transaction, and
    return its secret, which is never shown again. Raises `InvalidValue`.
    """
    host = require_allowed(url)
    webhook, secret = verbs.new_webhook(
        url,
        events=list(EVENTS),
        graphs=[run.graph],
        run=run.id,
        receiver=host,
        by=by,
    )
    webhook.save(force_insert=True)
    audit_log.record(
        "webhook_added",
        actor=by,
        run=run.id,
        webhook=str(webhook.id),
        host=webhook.host,
    )
    return secret


def callback_of(run_id: UUID) -> Webhook | None:
    """Return the callback of a run; None if it has none."""
    return Webhook.objects.filter(run=run_id).first()


def visible_callback(user: Any, run_id: UUID) -> Webhook:
    """Return the callback of a run to the user who named it, or to one who manages
    webhooks. Raises `UnknownThing` for everybody else, and if the run has none.
    """
    callback = callback_of(run_id)
    if callback is None or not _may_see(user, callback):
        raise UnknownThing("this approval has no callback")
    return callback


def _may_see(user: Any, callback: Webhook) -> bool:
    return bool(callback.by_id == user.pk or verbs.may_manage(user))


def require_same(run: Run, url: str | None) -> None:
    """Raise `KeyConflict` unless a run that was started earlier has this callback, or
    none if `url` is None.
    """
    callback = callback_of(run.id)
    if (callback.url if callback else None) != url:
        raise KeyConflict("the approval of this key has another callback")
