"""Doors of tests, and senders that sign as the library of Standard Webhooks does."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from standardwebhooks import Webhook

from approvals.doors import verbs as doors
from approvals.models import Door, DoorMessage
from checkpoints.models import Job, Run
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.support import run_actions
from tests.support.question_graphs import asking
from tests.support.small_graphs import registered


def ask_only(state: Any, ctx: Any) -> None:
    ctx.ask("total", "How much was paid?", {"minimum": 0})


def service_account(name: str = "bank") -> User:
    """An account with which nobody logs in."""
    account = User(username=name)
    account.set_unusable_password()
    account.save()
    return account


class Sender:
    """A service with the secret of a door."""

    def __init__(self, **columns: Any) -> None:
        registered(asking(fn=ask_only))
        self.account = run_actions.reviewer(service_account())
        values = {
            "account": self.account,
            "graph": "asking",
            "node": "ask",
            "key_pointer": "/data/order",
            "answer_pointer": "/data/paid",
        }
        self.door, self.secret = doors.make_door(
            "bank", **{**values, **columns}, by=None
        )

    def send(
        self, id: str = "msg_1", *, key: str = "A-1", paid: Any = 40, **how: Any
    ) -> Any:
        """Post a message, and return the answer. `how`: another `age`, `secret`,
        `slug`, or `body`.
        """
        body = how.get("body") or json.dumps({"data": {"order": key, "paid": paid}})
        at = datetime.now(UTC) - how.get("age", timedelta())
        signature = Webhook(how.get("secret") or self.secret).sign(id, at, body)
        return Client().post(
            f"/api/v1/doors/{how.get('slug', 'bank')}/",
            body,
            content_type="application/json",
            headers={
                "webhook-id": id,
                "webhook-timestamp": str(int(at.timestamp())),
                "webhook-signature": how.get("signature") or signature,
            },
        )

    def door_row(self) -> Door:
        return Door.objects.get(id=self.door.id)


def waiting_run(key: str = "A-1", **gate: Any) -> Run:
    """A run that waits for what was paid."""
    registered(asking(fn=ask_only, **gate))
    return runs.advance(runs.start("asking", {}, key=key).id)


def work_off() -> None:
    """Work off the jobs that deliver."""
    waiting = Job.objects.filter(kind="deliver_messages", ended_at=None)
    for job in waiting.values_list("id", flat=True):
        kinds.advance(job)


def came_of(id: str = "msg_1") -> tuple[str, str]:
    """The status of a message, and why it was refused."""
    message = DoorMessage.objects.get(message_id=id)
    return message.status, message.code
