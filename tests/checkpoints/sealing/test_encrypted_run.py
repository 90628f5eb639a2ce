"""A whole run of an encrypted graph, through API and pages; then nobody finds its
values in the database.
"""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client as Browser
from django.urls import reverse

from approvals.models import ApprovalRequest
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.core.status import Status
from checkpoints.models import LateResult, Run
from orchestrator import runs
from orchestrator.engine import END, START, Graph, registry
from orchestrator.models import IdempotencyRecord
from orchestrator.run_access.labels import progress_of
from tests.support import cast, dump, secret_claim
from tests.support.api_people import Client
from tests.support.processes import until
from tests.support.secret_claim import BATCH, broken, marked

pytestmark = pytest.mark.django_db(transaction=True)
INPUT = {
    "number": marked("number"),
    "person": marked("input"),
    "branch": marked("fact"),
}
READABLE = {"key", "again", "label", "fact"}
"""The marks that docs/encryption.md says are readable: a run's key, an idempotency key,
a write's label, a fact that is indexed.
"""


@pytest.fixture(autouse=True)
def encrypted(configure: Any) -> None:
    configure(**secret_claim.keys())
    secret_claim.registered()


@pytest.fixture
def olive(people: cast.People) -> Client:
    return Client(people.starter)


@pytest.fixture
def rita(people: cast.People) -> Client:
    people.reviewer.groups.add(Group.objects.get_or_create(name="claims")[0])
    return Client(people.reviewer)


def advanced(olive: Client, status: str) -> Run:
    run = runs.advance(marked("key"))
    assert run.status == status, (
        run.error_code,
        olive.get(f"runs/{run.id}/").json()["error"],
    )
    return run


def start(olive: Client) -> Any:
    body = {"graph": "secret_claim", "input": INPUT, "key": marked("key")}
    return olive.post("runs/", body, **{"Idempotency-Key": marked("again")})


def decide(rita: Client, run: Run) -> Any:
    """Edit the payout, approve the letter, reject the note."""
    (request,) = rita.get("requests/", run=str(run.id), waiting="me").json()["results"]
    writes = rita.get(f"requests/{request['id']}/").json()["writes"]
    content = [
        {
            "verdict": "edit",
            "value": {"to": "Ada", "memo": marked("edit")},
            "reason": marked("why"),
        },
        {"verdict": "approve", "reason": marked("reason")},
        {"verdict": "reject", "reason": marked("refusal")},
    ]
    decisions = [
        {"write": w["id"], "hash": w["hash"], **verdict}
        for w, verdict in zip(writes, content, strict=True)
    ]
    return rita.post(f"runs/{run.id}/signatures/", {"decisions": decisions})


def settle(olive: Client, run: Run) -> Any:
    output = {"sent": marked("output")}
    body = {
        "task": "send:1:0",
        "happened": True,
        "output": output,
        "reason": marked("settling"),
    }
    return olive.post(f"runs/{run.id}/settle/", body)


def whole_story(olive: Client, rita: Client, people: cast.People) -> Run:
    """Start, gate with an edit, a failure, an unknown outcome with a late result,
    settling, the end.
    """
    assert start(olive).status_code == 201
    run = advanced(olive, Status.PAUSED)
    assert decide(rita, run).status_code in (200, 201)
    broken.add("fragile")
    run = advanced(olive, Status.FAILED)
    broken.clear()
    olive.post(f"runs/{run.id}/resume/")
    run = advanced(olive, Status.UNKNOWN)
    until(
        lambda: LateResult.objects.filter(run=run).exists(),
        what="the late result",
        seconds=10,
    )
    people.starter.groups.add(Group.objects.get(name="steward"))
    answer = settle(Client(people.starter), run)
    assert answer.status_code == 200, answer.json()
    return advanced(olive, Status.COMPLETED)


def test_nobody_finds_a_value_of_an_encrypted_run_in_the_database(
    olive: Client, rita: Client, people: cast.People
) -> None:
    run = whole_story(olive, rita, people)
    marks = set(re.findall(rf"mark-{BATCH}-([a-z]+)-end".encode(), dump.of_database()))
    assert {name.decode() for name in marks} == READABLE
    kept = [(table, column, data) for table, column, data in dump.payloads() if data]
    assert {table for table, _, _ in kept} >= {
        "Run",
        "Checkpoint",
        "RunEvent",
        "PendingWrite",
        "TaskResult",
        "LateResult",
        "ApprovalRequest",
        "Decision",
        "IdempotencyRecord",
        "MemoryTrace",
    }
    assert [
        (table, column) for table, column, data in kept if data[:1] != ENCRYPTED
    ] == []
    assert run.encrypted is True
    assert run.hash_key == "old"


def test_what_a_node_of_an_encrypted_run_reports_is_encrypted_while_it_is_shown() -> (
    None
):
    seen: list[tuple[bytes, Any]] = []

    def work(state: Any, ctx: Any) -> None:
        ctx.report(1, 2, marked("report"))
        run = until(
            lambda: Run.objects.exclude(progress=b"").filter(id=ctx.run_id).first(),
            what="the report",
        )
        seen.append((bytes(run.progress), progress_of(run)))

    flow = Graph(
        "reporting", input=secret_claim.Claim, state=secret_claim.State, encrypted=True
    )
    flow.node("work")(work)
    flow.edge(START, "work")
    flow.edge("work", END)
    registry.replace(flow)
    assert runs.advance(runs.start("reporting", {}).id).status == Status.COMPLETED
    ((kept, facts),) = seen
    assert kept[:1] == ENCRYPTED
    assert (facts or {})["note"] == marked("report")


def test_an_encrypted_run_goes_through_the_api_as_any_other(
    olive: Client, rita: Client, people: cast.People
) -> None:
    run = whole_story(olive, rita, people)
    facts = olive.get(f"runs/{run.id}/").json()
    assert facts["input"] == INPUT
    assert facts["label"] == f"secret_claim · {run.key}"
    assert facts["facts"] == {"Branch": marked("fact")}
    point = olive.get(f"checkpoints/{run.key}:at-{run.head_seq}/").json()
    assert point["state"]["scratch"] == {
        "notes": [marked("state"), marked("node"), marked("result")],
        "payout": {"to": "Ada", "memo": marked("edit")},
        "letter": marked("letter"),
        "sent": marked("output"),
    }
    events = olive.get(f"runs/{run.id}/events/").json()["results"]
    assert marked("settling") in str(events)
    assert marked("failure") in str(events)
    request = ApprovalRequest.objects.get(run=run)
    assert (
        rita.get(f"requests/{request.id}/").json()["title"]
        == f"Pay {marked('input')}: {marked('title')}"
    )


def test_a_repeated_start_of_an_encrypted_run_gives_the_same_answer_and_the_same_run(
    olive: Client,
) -> None:
    first = start(olive)
    again = start(olive)
    assert again.status_code == first.status_code
    assert again.json() == first.json()
    record = IdempotencyRecord.objects.get()
    assert bytes(record.answer)[:1] == ENCRYPTED
    IdempotencyRecord.objects.all().delete()
    assert start(olive).json()["id"] == first.json()["id"]
    other = {
        "graph": "secret_claim",
        "input": {**INPUT, "person": "another"},
        "key": marked("key"),
    }
    assert olive.post("runs/", other).status_code == 409


def test_pages_show_an_encrypted_run_to_whoever_may_see_it(
    olive: Client, rita: Client, people: cast.People
) -> None:
    start(olive)
    run = advanced(olive, Status.PAUSED)
    browser = Browser()
    browser.force_login(people.reviewer)
    assert marked("title") in browser.get(reverse("inbox")).content.decode()
    review = browser.get(reverse("review", args=[run.id])).content.decode()
    assert marked("letter") in review
    assert marked("input") in review
    browser.force_login(people.auditor)
    state = browser.get(
        reverse("run", args=[run.id]), {"tab": "state"}
    ).content.decode()
    assert marked("input") in state
    listed = browser.get(reverse("runs")).content.decode()
    assert marked("key") in listed
    assert marked("input") not in listed
