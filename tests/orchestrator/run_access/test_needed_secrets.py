"""A graph that declares secrets runs where they are, and nowhere else: verbs, workers,
and what people read of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client as Browser

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.db.clock import db_now
from checkpoints.models import Checkpoint, Run, RunEvent, RunLine, Worker
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.discovery import note_version
from orchestrator.engine import END, START, Graph, registry
from orchestrator.engine.errors import InvalidGraph, MissingSecrets
from orchestrator.views.workers import SHOWN
from orchestrator.worker import claimable
from tests.support import cast, run_actions
from tests.support.api_people import Client
from tests.support.paid_claims import claim
from tests.support.small_graphs import graph, held, registered

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "with_secrets"


def give(settings: Any, **secrets: str) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "SECRETS": secrets}


@pytest.fixture
def needy() -> Graph:
    flow = claim(NAME)
    flow.secrets = ["bank_token", "seal"]
    return registered(flow)


@pytest.fixture
def run(needy: Graph, settings: Any, people: cast.People) -> Run:
    """A run that waits for its people, begun where the secrets were; they are gone
    since.
    """
    give(settings, bank_token="t-1", seal="s-1")
    run = runs.advance(runs.start(NAME, {}, key="needy").id)
    give(settings, bank_token="", other="x")
    return run


def worker(*fingerprints: str, **options: Any) -> Worker:
    now = {"started_at": db_now(), "heartbeat_at": db_now()}
    about = {"host": "h", "pid_space": "p", "pid": 1, "slots": 1}
    return Worker.objects.create(
        **{**now, **about, "fingerprints": list(fingerprints), **options}
    )


def counted() -> list[int]:
    return [
        model.objects.count()
        for model in (Run, Checkpoint, RunEvent, RunLine, ApprovalRequest)
    ]


def signed_in(person: Any) -> Browser:
    browser = Browser()
    browser.force_login(person)
    return browser


VERBS: dict[str, Callable[[Run, Any], Any]] = {
    "start": lambda run, by: runs.start(NAME, {}, key="another", by=by),
    "resume": lambda run, by: runs.resume(runs.get(run.id).id, by=by),
    "resume_patched": lambda run, by: runs.resume(
        run.id, patch={"scratch": {"letter": "x"}}, by=by
    ),
    "fork": lambda run, by: runs.fork(f"{run.key}:step-1", by=by),
    "fork_paused": lambda run, by: runs.fork(f"{run.key}:step-1", start=False, by=by),
    "plan": lambda run, by: runs.plan(f"{run.key}:step-1"),
    "replay": lambda run, by: runs.replay(f"{run.key}:initial", by=by),
    "rewind": lambda run, by: runs.rewind(run.id, f"{run.key}:step-1", by=by),
    "restart": lambda run, by: runs.start(NAME, {}, key=run.key, restart=True, by=by),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_that_runs_a_graph_is_refused_without_its_secrets_and_changes_nothing(
    verb: str, run: Run, people: cast.People
) -> None:
    if verb == "resume":
        Run.objects.filter(id=run.id).update(status=Status.FAILED)
    before = counted()
    with pytest.raises(
        MissingSecrets,
        match=f"graph {NAME} needs the secrets bank_token, seal, and neither",
    ) as refused:
        VERBS[verb](run, people.starter)
    assert refused.value.facts == {"graph": NAME, "secrets": ["bank_token", "seal"]}
    assert counted() == before
    assert Run.objects.get(id=run.id).line == 1


def test_a_run_that_is_there_is_found_under_its_key_all_the_same(
    run: Run, people: cast.People
) -> None:
    assert runs.start(NAME, {}, key=run.key).id == run.id


def test_a_live_worker_that_has_them_is_enough_and_one_that_is_gone_or_leaves_is_not(
    run: Run,
) -> None:
    worker(run.fingerprint, stopped_at=db_now())
    worker(run.fingerprint, draining=True)
    worker("another")
    with pytest.raises(MissingSecrets):
        runs.fork(f"{run.key}:step-1")
    worker(run.fingerprint)
    assert runs.fork(f"{run.key}:step-1").status == Status.QUEUED


def test_a_worker_without_them_takes_no_run_and_does_not_say_that_it_could(
    needy: Graph, settings: Any, run: Run, people: cast.People
) -> None:
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert Run.objects.get(id=run.id).status == Status.QUEUED
    assert run.fingerprint not in claimable.fingerprints()
    can = claimable.claimable()
    assert NAME not in can.graphs
    assert leases.claim(worker=None, limit=5, only=can) == []
    with pytest.raises(MissingSecrets, match="this process does not have them"):
        runs.advance(run.id)
    assert Run.objects.get(id=run.id).status == Status.QUEUED
    give(settings, bank_token="t-1", seal="s-1")
    assert run.fingerprint in claimable.fingerprints()
    assert runs.advance(run.id).status == Status.COMPLETED


def newer_version(version: str = "2", secrets: Sequence[str] = ()) -> str:
    """The fingerprint of this version, the current one."""
    flow = claim(NAME)
    flow.version = version
    flow.current = True
    flow.secrets = secrets
    newest = registry.register(flow)
    note_version(newest)
    return newest.fingerprint


def test_who_lacks_the_secrets_of_an_older_version_takes_and_judges_the_runs_of_all_others(
    run: Run, people: cast.People
) -> None:
    newest = newer_version()
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    other_run = runs.start(NAME, {}, key="gone")
    Run.objects.filter(id=other_run.id).update(fingerprint="0" * 64, version="0")
    current = runs.start(NAME, {}, key="current")
    assert current.fingerprint == newest
    can = claimable.claimable()
    assert {lease.id for lease in leases.claim(worker=None, limit=5, only=can)} == {
        other_run.id,
        current.id,
    }
    assert Run.objects.get(id=run.id).status == Status.QUEUED
    assert not leases.any_run_due(can)


def test_the_page_of_the_workers_names_runs_of_an_older_version_whose_secrets_nobody_has(
    run: Run, people: cast.People
) -> None:
    newest = newer_version()
    browser = signed_in(people.starter)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    other_run = runs.start(NAME, {}, key="gone")
    Run.objects.filter(id=other_run.id).update(fingerprint="0" * 64, version="0")
    worker(newest)
    page = " ".join(browser.get("/workers/").content.decode().split())
    assert (
        f"1 of <code>{NAME}</code> version 1, which needs the secrets <code>bank_token</code>"
        in page
    )
    assert "version 0" not in page, (
        "who has the newest version judges those that are gone"
    )


def test_a_worker_is_alive_however_many_others_were_heard_from_since(
    run: Run, people: cast.People
) -> None:
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    worker(run.fingerprint)
    for _ in range(SHOWN):
        worker("another")
    page = signed_in(people.starter).get("/workers/").content.decode()
    assert "No live worker can take" not in page
    assert f"<b>{SHOWN + 1}</b><span>alive" in page


def test_the_api_the_command_and_the_page_say_what_is_missing(
    run: Run, people: cast.People
) -> None:
    browser = signed_in(people.starter)
    answer = Client(people.starter, scopes=["steer"]).post(
        f"checkpoints/{run.key}:step-1/fork/", {}
    )
    assert answer.status_code == 503
    assert answer.json()["code"] == "missing_secrets"
    assert answer.headers["Retry-After"]
    assert answer.json()["secrets"] == ["bank_token", "seal"]
    with pytest.raises(
        CommandError, match=r"COUNTERSIGN\['SECRETS'\].*\[missing_secrets\]"
    ):
        call_command("fork_run", f"{run.key}:step-1")
    departed = Checkpoint.objects.get(run=run.id, seq=1)
    page = browser.get(
        f"/checkpoints/{departed.id}/go-on/", follow=True
    ).content.decode()
    assert "Fix 1 problem to fork" in page
    assert "needs the secrets bank_token, seal" in page
    before = counted()
    posted = browser.post(f"/graphs/{NAME}/start/", {"mode": "form", "i.folder": ""})
    assert posted.status_code == 409
    assert "needs the secrets bank_token, seal" in posted.content.decode()
    assert counted() == before


def test_the_page_of_the_workers_names_the_graph_whose_runs_nobody_can_take(
    run: Run, people: cast.People
) -> None:
    browser = signed_in(people.starter)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    worker("another")
    page = " ".join(browser.get("/workers/").content.decode().split())
    assert (
        f"1 of <code>{NAME}</code> version 1, which needs the secrets <code>bank_token</code>"
        in page
    )
    worker(run.fingerprint)
    assert "No live worker can take" not in browser.get("/workers/").content.decode()


def test_a_post_that_was_refused_for_want_of_secrets_is_done_under_the_same_key_once_they_are_there(
    run: Run, settings: Any, people: cast.People
) -> None:
    once = {"Idempotency-Key": "fork-1"}
    client = Client(people.starter, scopes=["steer"])
    where = f"checkpoints/{run.key}:step-1/fork/"
    assert client.post(where, {}, **once).status_code == 503
    give(settings, bank_token="t-1", seal="s-1")
    assert client.post(where, {}, **once).status_code == 201


def test_a_process_without_them_leaves_alone_what_another_has_in_hand_and_judges_what_is_gone(
    needy: Graph, run: Run, people: cast.People
) -> None:
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    held(run)
    assert runs.advance(run.id).status == Status.RUNNING
    older = claim(NAME)
    older.version = "0"
    registered(older)
    other_run = runs.start(NAME, {}, key="gone")
    registry.clear()
    registered(needy)
    newer_version("2", ["bank_token"])
    with pytest.raises(MissingSecrets):
        runs.advance(other_run.id)
    registry.clear()
    registered(needy)
    newest = newer_version("3")
    assert runs.advance(other_run.id).fingerprint == newest


def test_secrets_may_be_given_in_any_order_and_once(people: cast.People) -> None:
    flow = graph("given_once", secrets=(name for name in ["a", "b"]))
    flow.node("a")(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.edge("a", END)
    registered(flow)
    assert registry.current("given_once").graph.secrets == ("a", "b")


@pytest.mark.parametrize("wrong", ["bank_token", [""], [7], None, 7])
def test_secrets_are_a_list_of_names(wrong: Any) -> None:
    with pytest.raises(InvalidGraph, match="is no list of names"):
        registered(graph("wrong_secrets", secrets=wrong))
