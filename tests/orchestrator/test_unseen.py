"""A thing one may not see answers as one that is not there: every page, fragment and
address of the API, by the list of all addresses. Sockets are in
`live/test_consumers.py`, streams in `live/test_stream.py`.
"""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from approvals import reviews
from approvals.models import ApprovalRequest, Receipt, StandingPolicy
from approvals.webhooks import verbs as webhooks
from checkpoints.models import AuditLine, Run
from orchestrator import runs
from tests.support import authenticators
from tests.support.cast import People
from tests.support.doors import Sender
from tests.support.page_people import claim_graph, run
from tests.support.run_actions import pending, sign

__all__ = ["claim_graph", "run"]

LED = re.compile("/(sign|draft|seen|passkey|claim|comment|name|revoke)/$")
"""Opened, these lead to the review or to one's own account, whatever it is."""
WITHOUT_THING = re.compile(r"^(admin/|demo/|api/v1/schema|api/v1/\^)")


def addresses(resolver: URLResolver, before: str = "") -> list[str]:
    """All addresses that name a thing."""
    collected = []
    for entry in resolver.url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            collected += addresses(entry, pattern)
        elif (
            isinstance(entry, URLPattern)
            and "<" in pattern
            and not WITHOUT_THING.match(pattern)
        ):
            collected.append(pattern)
    return collected


def filled(pattern: str, things: dict[str, str]) -> str:
    """The address of these things; for an unknown name of a parameter the test must
    learn it.
    """
    return "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda match: things[match[1]], pattern)


def _standing_policy(request: ApprovalRequest, by: Any) -> StandingPolicy:
    now = timezone.now()
    return StandingPolicy.objects.create(
        number=1,
        by=by,
        graph=request.graph,
        gate=request.node,
        limits={"total": {}},
        begins_at=now,
        ends_at=now + timedelta(days=1),
        most_uses=1,
        made_at=now,
    )


@pytest.fixture
def there(run: Run, people: People) -> dict[str, str]:
    """The ids of things that only their people may see."""
    request = ApprovalRequest.objects.get(run=run)
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    ends = timezone.now() + timedelta(days=1)
    delegation = reviews.delegate(
        to=people.second_reviewer, ends=ends, by=people.reviewer
    )
    _, key = authenticators.registered(people.reviewer)
    webhook, _ = webhooks.add_webhook("https://hooks.example.org/", by=None)
    return {
        "ref": str(run.id),
        "run": str(run.id),
        "name": run.graph,
        "checkpoint": str(run.head),
        "request_id": str(request.id),
        "receipt_id": str(Receipt.objects.get().id),
        "format": "csv",
        "key": str(key.id),
        "delegation": str(delegation.id),
        "standing_policy": str(_standing_policy(request, people.reviewer).id),
        "decision": str(Receipt.objects.get().decisions.all()[0].id),
        "number": str(AuditLine.objects.get(kind="signed").id),
        "door": Sender().door.slug,
        "webhook": str(webhook.id),
        "delivery": str(webhooks.send_test(webhook.id, by=None).id),
        "fork": str(
            runs.fork_many(graph=run.graph, status="paused", by=people.starter).id
        ),
    }


GONE = {
    "ref": str(uuid4()),
    "run": str(uuid4()),
    "name": "no_such_graph",
    "checkpoint": str(uuid4()),
    "request_id": str(uuid4()),
    "receipt_id": str(uuid4()),
    "format": "xlsx",
    "key": "999999999",
    "number": "999999999",
    "fork": str(uuid4()),
    "decision": str(uuid4()),
    "delegation": str(uuid4()),
    "standing_policy": str(uuid4()),
    "door": "nowhere",
    "webhook": str(uuid4()),
    "delivery": str(uuid4()),
}


def test_what_one_may_not_see_is_answered_like_what_is_not_there(
    there: dict[str, str], people: People
) -> None:
    client = Client()
    patterns = addresses(get_resolver())
    client.force_login(people.nobody)
    assert len(patterns) >= 40
    wrong: list[Any] = []
    for pattern in patterns:
        for method in ("get", "post"):
            kind = (
                {"content_type": "application/json"}
                if "api/" in pattern and method == "post"
                else {}
            )
            seen, gone = (
                getattr(client, method)(filled(pattern, ids), **kind)
                for ids in (there, GONE)
            )
            same = _plain(seen, there) == _plain(gone, GONE)
            # What a form left to be said would be said by the next page alone.
            client.cookies.pop("messages", None)
            if (
                seen.status_code != gone.status_code
                or not same
                or seen.status_code < 300
            ):
                wrong.append(
                    (
                        method,
                        pattern,
                        seen.status_code,
                        gone.status_code,
                        seen.content[:200],
                    )
                )
            if (
                method == "get"
                and seen.status_code not in (404, 405, 400)
                and not LED.search(pattern)
            ):
                wrong.append((method, pattern, seen.status_code))
    assert not wrong, "\n".join(map(str, wrong))


def _plain(answer: Any, things: dict[str, str]) -> str:
    """Return what an answer says, without the names of the things that were asked for
    and what is made anew each time.
    """
    text = answer.content.decode()
    for value in things.values():
        text = text.replace(f"/{value}/", "/thing/").replace(
            value if len(value) > 30 else "\0", "thing"
        )
    text = re.sub(r"page_claim|no_such_graph|export\.\w+|audit line.*", "thing", text)
    return re.sub(r'(nonce|value|csrf\w*)="[^"]*"|err_\w+', "", text)
