"""The settle page: two equal answers, a reason, and what the server lets one say."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints.models import AuditLine, Run, TaskResult
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator.engine import END, START, Graph, registry
from orchestrator.runs.unknown_outcomes import carried_keys
from orchestrator.views import run_problem
from orchestrator.views.run_problem import problem_of
from tests.support import claims
from tests.support.cast import People
from tests.support.forging import rewrite
from tests.support.rows import a_checkpoint, a_run

Browse = Callable[[User], Client]


@pytest.fixture
def lost(claim_graph: None, people: People) -> Run:
    """A run whose letter may or may not have gone out; the worker's thread is seen to
    have ended.
    """
    graph = Graph("lost_letter", input=claims.Claim, state=claims.State)

    @graph.node(effect="external")
    def send(state: Any, ctx: Any) -> Any:
        """Send the letter."""

    graph.edge(START, "send")
    graph.edge("send", END)
    compiled = registry.replace(graph)
    run = a_run(
        graph="lost_letter",
        fingerprint=compiled.fingerprint,
        status="unknown",
        started_by=people.starter,
    )
    a_checkpoint(run, 0)
    now = timezone.now()
    row = TaskResult(
        run=run,
        line=1,
        node="send",
        visit=1,
        attempt=1,
        effect="external",
        epoch=1,
        superstep=1,
        intent_at=now,
        over_at=now + timedelta(minutes=1),
        thread_ended_at=now,
        outcome="unknown",
    )
    sealed_rows.seal(row, sealed_rows.PLAIN)
    row.save()
    return run


def answer_of(**changed: str) -> dict[str, str]:
    return {
        "task": "send:1:0",
        "answer": "yes",
        "output": '{"letter": "sent"}',
        "reason": "it is in the outbox",
        **changed,
    }


def test_the_page_asks_without_a_default(
    lost: Run, people: People, browse: Browse
) -> None:
    html = (
        browse(people.starter).get(reverse("settle", args=[lost.id])).content.decode()
    )
    assert "Send the letter." in html
    assert "It happened" in html
    assert "It did not" in html
    assert " checked" not in html


def test_the_panel_of_the_run_lists_what_is_unknown_by_its_key_also_for_who_may_not_settle(
    lost: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((row, key),) = carried_keys(lost)
    panel = problem_of(lost, asks=False, may_steer=False, may_settle=False)
    assert panel is not None
    assert panel.unknown == ((row.task, key),)
    assert panel.has_more_unknown is False
    monkeypatch.setattr(run_problem, "MOST_UNKNOWN", 0)
    panel = problem_of(lost, asks=False, may_steer=False, may_settle=False)
    assert panel is not None
    assert panel.unknown == ()
    assert panel.has_more_unknown is True


def test_it_happened_with_this_output(
    lost: Run, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(reverse("settle", args=[lost.id]), answer_of())
    row = TaskResult.objects.get()
    assert answer.url == reverse("run", args=[lost.id])
    assert row.outcome == "done"
    assert row.settled_by == people.starter
    assert unpack_json(row.settled_reason) == "it is in the outbox"
    assert "sent" in str(unpack_json(row.output))
    assert Run.objects.get(id=lost.id).status == "queued"


def test_it_did_not_happen(lost: Run, people: People, browse: Browse) -> None:
    browse(people.starter).post(
        reverse("settle", args=[lost.id]), answer_of(answer="no")
    )
    assert TaskResult.objects.get().outcome == "not_done"


@pytest.mark.parametrize(
    ("changed", "status", "content"),
    [
        ({"reason": " "}, 422, "needs a reason"),
        ({"answer": ""}, 422, "Choose which is true"),
        ({"output": "{"}, 422, "The output is not valid JSON"),
        ({"output": '{"nothing": 1}'}, 422, "nothing"),
        ({"task": "other:1:0"}, 404, "no unknown outcome"),
    ],
)
def test_what_cannot_stand_changes_nothing_and_says_why(
    changed: dict[str, str],
    status: int,
    content: str,
    lost: Run,
    people: People,
    browse: Browse,
) -> None:
    answer = browse(people.starter).post(
        reverse("settle", args=[lost.id]), answer_of(**changed)
    )
    assert answer.status_code == status
    assert content in answer.content.decode()
    assert TaskResult.objects.get().outcome == "unknown"


def test_running_it_again_while_a_frozen_process_could_act_wants_an_extra_yes(
    lost: Run, people: People, browse: Browse
) -> None:
    rewrite(
        TaskResult.objects.get(),
        thread_ended_at=None,
        over_at=timezone.now() - timedelta(minutes=1),
    )
    client = browse(people.starter)
    url = reverse("settle", args=[lost.id])
    assert b"A frozen process could still act" in client.get(url).content
    assert client.post(url, answer_of(answer="no")).status_code == 409
    assert (
        client.post(url, {**answer_of(answer="no"), "accept_risk": "yes"}).status_code
        == 302
    )
    assert TaskResult.objects.get().outcome == "not_done"


def test_running_it_again_is_refused_while_the_attempt_may_go_on(
    lost: Run, people: People, browse: Browse
) -> None:
    rewrite(TaskResult.objects.get(), thread_ended_at=None)
    client = browse(people.starter)
    url = reverse("settle", args=[lost.id])
    assert b"may still be going on" in client.get(url).content
    assert (
        client.post(url, {**answer_of(answer="no"), "accept_risk": "yes"}).status_code
        == 409
    )


def test_who_may_not_settle_reads_a_sentence_and_is_refused(
    lost: Run, people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    url = reverse("settle", args=[lost.id])
    html = client.get(url).content.decode()
    assert "You may look, but not settle." in html
    assert 'name="answer"' not in html
    assert client.post(url, answer_of()).status_code == 403
    assert AuditLine.objects.filter(
        kind="refused_settle", actor=people.auditor
    ).exists()
