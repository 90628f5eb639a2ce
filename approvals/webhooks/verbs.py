"""Webhooks: adding one, switching it on and off, removing it, sending a test, and
sending a delivery again. `approvals.notices` sends what is due.

Webhooks report on every run, so managing them also needs the right to see all runs. For
everybody else there are none. `callbacks` adds those of single approvals.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from approvals.models import (
    DeliveryStatus,
    Envelope,
    Notice,
    Webhook,
    WebhookDelivery,
)
from approvals.notice_rows import EVENTS
from approvals.permissions import may
from approvals.webhooks import signatures
from approvals.webhooks.address import read_address
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf, keyring
from checkpoints.core.arguments import checked_actor, checked_text, checked_yes_or_no
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.db.clock import db_now, read_now
from checkpoints.queue import jobs
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import InvalidValue, UnknownThing, WrongStatus

SEND_WEBHOOK = "send_webhook"
"""The kind of the jobs that send. Their fact `webhook` is the id of the webhook; jobs
for callbacks have the host instead, as `receiver`.
"""
TEST = "webhook.test"
"""The event of a test."""
MOST_WEBHOOKS = 100
MOST_GRAPHS = 100
LONGEST_NAME = 200


def may_manage(user: Any) -> bool:
    """Return whether there are webhooks for this user."""
    return may(user, "manage_webhooks") and may(user, "view_run")


def visible_webhooks(user: Any) -> "QuerySet[Webhook]":
    """Return the webhooks that this user may see, without callbacks: all or none."""
    return _visible(user).filter(run=None)


def visible_callbacks(user: Any) -> "QuerySet[Webhook]":
    """Return the callbacks of approvals that this user may see, the newest first: all or
    none.
    """
    # There may be millions; their ids are in order of time.
    return _visible(user).exclude(run=None).order_by("-id")


def visible_webhook(user: Any, webhook_id: UUID) -> Webhook:
    """Return the webhook or callback. Raises `UnknownThing`, including where the user
    may not see it.
    """
    webhook = _visible(user).filter(id=webhook_id).first()
    if webhook is None:
        raise unknown_thing("webhook", webhook_id)
    return webhook


def _visible(user: Any) -> "QuerySet[Webhook]":
    if not may_manage(user):
        return Webhook.objects.none()
    return Webhook.objects.all()


def is_vouched_for(webhook: Webhook) -> bool:
    """Return whether a webhook may be sent to: whoever added it must still manage
    webhooks. The system always does. For a callback, the settings must allow its host,
    and its owner may still start runs.
    """
    if webhook.run is not None:
        is_allowed = webhook.receiver in conf().callback_hosts
        return is_allowed and may(webhook.by, "start_run")
    return webhook.by is None or may_manage(webhook.by)


def add_webhook(
    url: str,
    *,
    events: Sequence[str] = (),
    graphs: Sequence[str] = (),
    envelope: str = Envelope.STANDARD,
    by: Any,
) -> tuple[Webhook, str]:
    """Add a webhook for these events of these graphs; for all of them if none are
    named. Return it with its secret, which is never shown again. `by` None is the
    system.

    Raises `InvalidValue`, and `UnknownThing` for a person for whom there are none.
    """
    _require_manager(by)
    address = read_address(url)
    webhook, secret = new_webhook(
        url,
        events=_checked_events(events),
        graphs=_checked_graphs(graphs),
        envelope=_checked_envelope(envelope),
        by=by,
    )
    with transaction.atomic():
        if Webhook.objects.filter(run=None).count() >= MOST_WEBHOOKS:
            raise InvalidValue(f"there are {MOST_WEBHOOKS} webhooks, and not more")
        webhook.save(force_insert=True)
        id = str(webhook.id)
        audit_log.record("webhook_added", actor=by, webhook=id, host=address.host)
    return webhook, secret


def new_webhook(url: str, *, by: Any, **columns: Any) -> tuple[Webhook, str]:
    """Return the sealed row of a new webhook, to be inserted, with its secret."""
    secret = signatures.new_secret()
    protection = Protection(encrypted=bool(keyring().encryption))
    webhook = Webhook(
        url=url,
        secret=pack_json(secret),
        encrypted=protection.encrypted,
        by=by,
        at=read_now(),
        **columns,
    )
    sealed_rows.seal_and_encrypt([webhook], protection)
    return webhook, secret


def _require_manager(by: Any) -> None:
    person = checked_actor(by, "by")
    if person is not None and not may_manage(person):
        raise UnknownThing("there are no webhooks")


def _checked_events(events: Any) -> list[str]:
    chosen = _checked_list(events, "events", most=len(EVENTS))
    for event in chosen:
        if event not in EVENTS:
            raise InvalidValue(f"events are of {', '.join(EVENTS)}", path="events")
    return chosen


def _checked_graphs(graphs: Any) -> list[str]:
    return _checked_list(graphs, "graphs", most=MOST_GRAPHS)


def _checked_envelope(envelope: Any) -> str:
    if envelope not in Envelope.values:
        raise InvalidValue(
            f"an envelope is of {', '.join(Envelope.values)}", path="envelope"
        )
    return str(envelope)


def _checked_list(values: Any, path: str, *, most: int) -> list[str]:
    """Return the texts of a list without repetitions. Raises `InvalidValue`."""
    # In Python, a string is a collection too.
    is_list = isinstance(values, Collection) and not isinstance(values, str | bytes)
    if not is_list or len(values) > most:
        raise InvalidValue(f"{path} is a list of at most {most}", path=path)
    texts = [checked_text(value, path, least=1, most=LONGEST_NAME) for value in values]
    return list(dict.fromkeys(texts))


def secret_of(webhook: Webhook) -> bytes:
    """Return the bytes with which the messages of a webhook are signed. Raises
    `TamperedRow` and `WrongKey`.
    """
    sealed_rows.verify_row(webhook, Protection(encrypted=webhook.encrypted))
    return signatures.key_of(str(read_value(webhook, "secret")))


def switch_webhook(webhook_id: UUID | str, *, active: bool, by: Any) -> Webhook:
    """Switch a webhook on or off. Deliveries to one that is off wait until it is on,
    and are then tried for a day. A row that does not verify can be switched off, and
    for good.

    Raises `UnknownThing`, `InvalidValue`, `TamperedRow` and `WrongKey`.
    """
    _require_manager(by)
    checked_yes_or_no(active, "active")
    with transaction.atomic():
        webhook = _locked(webhook_id)
        if active:
            protection = Protection(encrypted=webhook.encrypted)
            sealed_rows.verify_row(webhook, protection)
        if webhook.active != active:
            webhook.deliveries.filter(status=DeliveryStatus.WAITING).update(
                first_at=None
            )
            _set_active(webhook, active)
            id = str(webhook.id)
            audit_log.record("webhook_switched", actor=by, webhook=id, active=active)
        if active:
            _add_job(webhook)
    return webhook


def _set_active(webhook: Webhook, active: bool) -> None:
    protection = Protection(encrypted=webhook.encrypted)
    if fault_of(webhook, protection) is None:
        changed = sealed_rows.seal_again(webhook, protection, active=active)
        webhook.save(update_fields=changed)
        return
    # A new seal would make a tampered row look genuine.
    webhook.active = active
    webhook.save(update_fields=["active"])


def remove_webhook(webhook_id: UUID | str, *, by: Any) -> None:
    """Remove a webhook with all that was sent to it and all that waits, whether or not
    its row verifies. Raises `UnknownThing`, and `WrongStatus` for a callback.
    """
    _require_manager(by)
    with transaction.atomic():
        webhook = _locked(webhook_id)
        if webhook.run is not None:
            raise WrongStatus("a callback stays with its approval; switch it off")
        audit_log.record(
            "webhook_removed",
            actor=by,
            webhook=str(webhook.id),
            host=webhook.host,
        )
        webhook.delete()


def _locked(webhook_id: UUID | str) -> Webhook:
    """Return the webhook, locked for the caller's transaction."""
    rows = Webhook.objects.filter(id=uuid_of(webhook_id, "webhook"))
    webhook = rows.select_for_update(of=("self",)).first()
    if webhook is None:
        raise unknown_thing("webhook", webhook_id)
    return webhook


def _require_active(webhook: Webhook) -> None:
    if not webhook.active:
        raise WrongStatus("this webhook is switched off; switch it on first")


def send_test(webhook_id: UUID | str, *, by: Any) -> WebhookDelivery:
    """Send a message that is about nothing, as any other is sent. Raises `UnknownThing`,
    and `WrongStatus` for a webhook that is off.
    """
    _require_manager(by)
    with transaction.atomic():
        webhook = _locked(webhook_id)
        _require_active(webhook)
        now = read_now()
        # It belongs to this webhook alone, so no other receives it.
        notice = Notice.objects.create(event=TEST, at=now, passed_on_at=now)
        delivery = WebhookDelivery.objects.create(
            webhook=webhook, notice=notice, due_at=now, made_at=now
        )
        audit_log.record("webhook_tested", actor=by, webhook=str(webhook.id))
        _add_job(webhook)
    return delivery


def send_again(webhook_id: UUID | str, delivery_id: UUID | str, *, by: Any) -> None:
    """Send a delivery again, now and for a day, under the id that it has. Raises
    `UnknownThing`, and `WrongStatus` for a webhook that is off.
    """
    _require_manager(by)
    with transaction.atomic():
        webhook = _locked(webhook_id)
        rows = webhook.deliveries.filter(id=uuid_of(delivery_id, "delivery"))
        if not rows.exists():
            raise unknown_thing("delivery", delivery_id)
        _require_active(webhook)
        rows.update(status=DeliveryStatus.WAITING, due_at=db_now(), first_at=None)
        audit_log.record(
            "webhook_sent_again",
            actor=by,
            webhook=str(webhook.id),
            delivery=str(delivery_id),
        )
        _add_job(webhook)


def _add_job(webhook: Webhook) -> None:
    if webhook.run is None:
        add_send_job(webhook.id)
    else:
        add_callback_job(webhook.receiver)


def add_callback_job(receiver: str) -> None:
    """Queue the job that sends what is due for all callbacks to this host, as
    `add_send_job` does for a webhook: so a host that does not answer delays only its
    own callbacks.
    """
    jobs.add_job(SEND_WEBHOOK, name=f"callbacks:{receiver}", receiver=receiver)


def add_send_job(webhook_id: UUID) -> None:
    """Queue the job that sends what is due for a webhook, in the caller's transaction,
    unless there is one. Each webhook has its own job, so a receiver that does not
    answer delays no other.
    """
    jobs.add_job(SEND_WEBHOOK, name=f"webhook:{webhook_id}", webhook=str(webhook_id))
