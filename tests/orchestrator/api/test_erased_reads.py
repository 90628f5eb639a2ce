"""What the API and the pages give of an erased run is sound: nothing of it is called
tampered.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.urls import reverse

from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints import retention, timeline
from checkpoints.models import AuditLine, Run
from tests.support import cast, erasures, secret_claim
from tests.support.api_people import Client

pytestmark = pytest.mark.django_db(transaction=True)


def addresses(run: Run) -> Iterator[str]:
    """Every address of the API that tells something of a run."""
    for part in (
        "",
        "checkpoints/",
        "events/",
        "decisions/",
        "lineage/",
        "history/?path=payout",
        "blame/?path=payout",
    ):
        yield f"runs/{run.id}/{part}"
    for row in timeline.list_checkpoints(run.id):
        yield from (f"checkpoints/{row.id}/{part}" for part in ("", "state/", "diff/"))
    yield f"requests/?run={run.id}"
    yield from (
        f"requests/{request.id}/"
        for request in ApprovalRequest.objects.filter(run=run.id)
    )
    yield f"audit/?run={run.id}"
    yield from (f"audit/{line.id}/" for line in AuditLine.objects.filter(run=run.id))
    yield from (
        f"decisions/{decision.id}/receipt/"
        for decision in Decision.objects.filter(run=run.id)
    )


def pages(run: Run) -> Iterator[str]:
    """Every page that shows rows of a run."""
    yield from (reverse(name, args=[run.id]) for name in ("run", "review"))
    yield from (
        f"{reverse('run', args=[run.id])}?tab={tab}"
        for tab in ("state", "writes", "results", "events")
    )
    yield from (
        reverse("receipt", args=[receipt.id])
        for receipt in Receipt.objects.filter(run=run.id)
    )
    yield from (
        reverse("audit_line", args=[line.id])
        for line in AuditLine.objects.filter(run=run.id)
    )


def faults_in(value: Any) -> Iterator[Any]:
    """Every `fault` at any depth."""
    if isinstance(value, dict):
        yield from ([value["fault"]] if value.get("fault") else [])
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from faults_in(inner)


def of_all_roles(people: cast.People) -> User:
    """A person who may read everything about a run that rita signed."""
    people.reviewer.groups.add(
        *people.auditor.groups.all(), *people.steward.groups.all()
    )
    return User.objects.get(pk=people.reviewer.pk)


@pytest.mark.parametrize(
    ("encrypted", "paths"),
    [(True, None), (False, ["payout.memo", "input.person"])],
    ids=["encrypted", "paths"],
)
def test_no_answer_and_no_page_about_an_erased_run_calls_it_tampered(
    people: cast.People, configure: Any, encrypted: bool, paths: list[str] | None
) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    run = erasures.whole_story(people)
    reader = of_all_roles(people)
    retention.erase(run.id, paths, by=people.steward)
    for address in addresses(run):
        answer = Client(reader).get(address)
        assert answer.status_code == 200, (address, answer.content)
        assert list(faults_in(json.loads(answer.content))) == [], address
    browser = Browser()
    browser.force_login(reader)
    for page in pages(run):
        shown = browser.get(page)
        assert shown.status_code == 200, page
        assert 'data-test="tampered"' not in shown.content.decode(), page
        assert 'data-test="unverified"' not in shown.content.decode(), page
