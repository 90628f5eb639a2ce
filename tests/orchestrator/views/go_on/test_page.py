"""The page on which a run goes on from a checkpoint: what it says before, and that what
it does is done once.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Checkpoint, Run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support.histories import policy, pruned
from tests.support.page_forms import fields_of
from tests.support.paid_claims import PAID, claim, paid, rows_of
from tests.support.rows import a_checkpoint
from tests.support.sent_on import sent_on
from tests.support.small_graphs import advanced

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


def at(run: Run, seq: int) -> Checkpoint:
    return timeline.get_checkpoint(f"{run.key}:at-{seq}")


def url(run: Run, seq: int) -> str:
    return f"/checkpoints/{at(run, seq).id}/go-on/"


def words(html: str) -> str:
    """The words of a page."""
    main = html.split("<main")[1]
    return " ".join(
        strip_tags(
            main.replace("<", " <").replace("&#x27;", "'").replace("&quot;", '"')
        ).split()
    )


def opened(client: Client, run: Run, seq: int, **query: str) -> dict[str, str]:
    return fields_of(client.get(url(run, seq), query, follow=True).content.decode())


def posted(client: Client, run: Run, seq: int, **fields: Any) -> Any:
    """The page, opened and posted with these fields over those that it holds."""
    how = fields.get("how", "fork")
    return client.post(
        url(run, seq),
        {**opened(client, run, seq), "how": how, "shown": how, "do": "check", **fields},
    )


def test_the_page_says_what_is_kept_what_runs_and_where_the_fork_would_stop(
    people: cast.People, browse: Browse
) -> None:
    run = paid("told", people)
    text = words(browse(people.starter).get(url(run, 1), follow=True).content.decode())
    assert "Go on from checkpoint 1, after first" in text
    assert "1 kept 0 happen again 1 stop before 1 ask people" in text
    assert "first kept" in text
    assert "ask asks people" in text
    assert "pay stops before" in text
    sentence = "May run, depending on what ask decides"
    assert text.count("May run") == 1
    assert f"{sentence} External: pay stops before" in text
    assert "refuse runs" in text.split(sentence)[1]
    assert "May these happen a second time? pay It happened already." in text
    assert "The input is frozen" in text
    assert "Diagnostics are written by the engine only" in text


def test_the_plan_follows_what_is_allowed(people: cast.People, browse: Browse) -> None:
    run = paid("allowing", people)
    text = words(
        posted(browse(people.starter), run, 1, **{"allow-pay": "yes"}).content.decode()
    )
    assert "1 happen again 0 stop before" in text
    assert "pay happens again" in text


def test_a_fork_is_made_as_it_was_planned_once_however_often_the_page_is_posted(
    people: cast.People, browse: Browse
) -> None:
    run = paid("forking", people)
    before = rows_of(run)
    client = browse(people.starter)
    fields = opened(client, run, 1) | {
        "how": "fork",
        "do": "go",
        "mode": "ops",
        "key": "mine",
        "reason": "because",
    }
    fields["ops"] = '[{"op": "replace", "path": "/scratch/letter", "value": "dear"}]'
    first = client.post(url(run, 1), fields)
    again = client.post(url(run, 1), fields)
    made = Run.objects.get(key="mine")
    assert first.url == f"/runs/{made.id}/"
    assert again.url == f"/runs/{made.id}/"
    assert Run.objects.filter(origin_checkpoint=at(run, 1).id).count() == 1
    assert made.status == Status.QUEUED
    assert run_actions.state(made)["letter"] == "dear"
    assert rows_of(run) == before


def test_a_fork_can_be_made_paused(people: cast.People, browse: Browse) -> None:
    run = paid("paused_fork", people)
    answer = posted(browse(people.starter), run, 1, do="paused")
    made = Run.objects.exclude(id=run.id).get()
    assert answer.url == f"/runs/{made.id}/"
    assert made.status == Status.PAUSED


@pytest.mark.parametrize(
    ("fields", "patch"),
    [
        ({"mode": "form", "s-total": "7"}, {"total": 7}),
        ({"mode": "form"}, {}),
        (
            {
                "mode": "json",
                "json": '{"scratch": {"letter": "x", "notes": ["first"], "total": 0}}',
            },
            {"letter": "x"},
        ),
        (
            {"mode": "json", "json": '{"scratch": {"letter": "", "total": 0}}'},
            {"notes": []},
        ),
        ({"mode": "ops", "ops": '{"scratch": {"letter": "y"}}'}, {"letter": "y"}),
        (
            {
                "mode": "ops",
                "ops": '[{"op": "add", "path": "/scratch/notes/-", "value": "z"}]',
            },
            {"notes": ["first", "z"]},
        ),
    ],
)
def test_a_patch_can_be_typed_in_three_ways(
    fields: dict[str, str], patch: dict[str, Any], people: cast.People, browse: Browse
) -> None:
    made = advanced(claim("three_ways"))
    client = browse(people.starter)
    answer = posted(client, made, 1, do="go", **fields)
    assert answer.status_code == 302, words(answer.content.decode())
    fork = Run.objects.exclude(id=made.id).get()
    assert {**run_actions.state(made), **patch} == run_actions.state(fork) | {
        "total": patch.get("total", 0)
    }


def test_what_is_wrong_is_said_with_path_rule_and_value_and_nothing_is_made(
    people: cast.People, browse: Browse
) -> None:
    run = paid("wrong", people)
    client = browse(people.starter)
    wrong = (
        '{"scratch": {"total": "many", "letter": 3, "nothing": 1}, "input": {},'
        ' "diagnostics": {}}'
    )
    answer = posted(client, run, 1, do="go", mode="json", json=wrong)
    text = words(answer.content.decode())
    assert answer.status_code == 422
    for said in (
        "scratch.total",
        "scratch.letter",
        "scratch.nothing",
        "input The input is frozen",
        "diagnostics",
    ):
        assert said in text
    assert "problems to fork" in answer.content.decode()
    for ops in (
        "nonsense",
        '[{"op": "add", "path": "/input/folder", "value": 1}]',
        "[3]",
        "7",
        '{"input": {}}',
    ):
        assert posted(client, run, 1, do="go", mode="ops", ops=ops).status_code == 422
    assert posted(client, run, 1, do="go", key="a/b").status_code == 422
    assert posted(client, run, 1, do="go", key=run.key).status_code == 409
    assert Run.objects.count() == 1


def test_a_patch_of_a_signed_channel_says_so_before_it_starts(
    people: cast.People, browse: Browse
) -> None:
    run = paid("signed_before", people)
    settled = timeline.list_checkpoints(run.id)[1]
    client = browse(people.starter)
    answer = posted(
        client, run, settled.seq, mode="ops", ops='{"scratch": {"total": 9999}}'
    )
    text = words(answer.content.decode())
    assert "it needs the same signatures" in text
    assert "the patch asks people" in text
    assert "Fork and ask for signatures" in answer.content.decode()
    posted(
        client,
        run,
        settled.seq,
        do="go",
        mode="ops",
        ops='{"scratch": {"total": 9999}}',
    )
    new_run = runs.advance(Run.objects.exclude(id=run.id).get().id)
    assert new_run.status == Status.PAUSED
    assert ApprovalRequest.objects.get(run=new_run).node == "$patch"


def test_answers_are_reused_changed_or_asked_again(
    people: cast.People, browse: Browse
) -> None:
    run = paid("answered", people)
    reviewer = run_actions.reviewer(people.starter)
    client = browse(reviewer)
    text = words(client.get(url(run, 2), follow=True).content.decode())
    assert "Answers ask proposed for total : 10" in text
    assert f"{people.reviewer.username} answered: 10" in text
    same = {"a-ask.total": "reuse", "allow-pay": "yes"}
    assert (
        runs.advance(posted(client, run, 2, do="go", **same).url.split("/")[2]).status
        == Status.COMPLETED
    )
    other = {"a-ask.total": "change", "c-ask.total": "5", "allow-pay": "yes"}
    assert (
        runs.advance(posted(client, run, 2, do="go", **other).url.split("/")[2]).status
        == Status.COMPLETED
    )
    assert [line.rpartition(":")[2] for line in PAID] == ["10", "10", "5"]
    assert (
        runs.advance(posted(client, run, 2, do="go").url.split("/")[2]).status
        == Status.PAUSED
    )
    bad = posted(
        client, run, 2, do="go", **{"a-ask.total": "change", "c-ask.total": "few"}
    )
    assert bad.status_code == 422
    assert "answers.ask.total" in words(bad.content.decode())


def test_who_is_no_reviewer_is_told_that_it_is_asked_again(
    people: cast.People, browse: Browse
) -> None:
    run = paid("no_answer", people)
    client = browse(people.starter)
    assert "You are not one of its reviewers" in words(
        client.get(url(run, 2), follow=True).content.decode()
    )
    new_run = runs.advance(
        posted(client, run, 2, do="go", **{"a-ask.total": "reuse"}).url.split("/")[2]
    )
    assert new_run.status == Status.PAUSED


def test_a_rewind_needs_a_reason_and_asks_again_where_it_withdraws_a_review(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("rewinding"))
    client = browse(people.starter)
    assert (
        "and withdraw 1 review"
        in client.get(url(run, 1), {"how": "rewind"}, follow=True).content.decode()
    )
    assert posted(client, run, 1, how="rewind", do="go").status_code == 422
    sure = posted(client, run, 1, how="rewind", do="go", reason="wrong photos")
    html = sure.content.decode()
    assert "Keep everything" in html
    assert "1 open review is withdrawn" in words(html)
    assert Run.objects.get(id=run.id).line == 1
    fields = fields_of(html) | {"sure": "yes"}
    assert client.post(url(run, 1), fields).url == f"/runs/{run.id}/"
    assert client.post(url(run, 1), fields).url == f"/runs/{run.id}/"
    assert Run.objects.get(id=run.id).line == 2


def test_a_rewind_that_repeats_an_effect_asks_again_and_names_it(
    people: cast.People, browse: Browse
) -> None:
    run = paid("repeating", people)
    client = browse(people.starter)
    fields = {"how": "rewind", "do": "go", "reason": "again", "allow-pay": "yes"}
    text = words(posted(client, run, 1, **fields).content.decode())
    assert (
        "You said yes to doing again what was done already, or may have been: pay"
        in text
    )
    assert (
        posted(client, run, 1, how="rewind", do="go", reason="again").status_code == 302
    )


def test_a_run_that_went_back_meanwhile_is_not_rewound_once_more(
    people: cast.People, browse: Browse
) -> None:
    run = paid("went_back", people)
    client = browse(people.starter)
    fields = opened(client, run, 1) | {
        "how": "rewind",
        "do": "go",
        "reason": "again",
        "sure": "yes",
    }
    fields["shown"] = "rewind"
    runs.rewind(run.id, at(run, 2).id, by=people.starter)
    fields["seen"] = " ".join(
        str(request.id) for request in ApprovalRequest.objects.filter(run=run, line=2)
    )
    answer = client.post(url(run, 1), fields)
    assert answer.status_code == 409
    assert "has gone back since you saw it" in words(answer.content.decode())


def test_who_may_not_steer_may_look_and_who_may_not_see_finds_nothing(
    people: cast.People, browse: Browse
) -> None:
    run = paid("permission", people)
    run_actions.reviewer(people.reviewer)
    client = browse(people.reviewer)
    assert "You may look, but not go on" in words(
        client.get(url(run, 1), follow=True).content.decode()
    )
    assert posted(client, run, 1, do="go").status_code == 403
    assert AuditLine.objects.filter(kind="refused_travel", run=run.id).exists()
    assert browse(people.nobody).get(url(run, 1), follow=True).status_code == 404
    assert (
        browse(people.starter)
        .get("/checkpoints/0198c0de-0000-7000-8000-000000000000/go-on/")
        .status_code
        == 404
    )
    assert Run.objects.count() == 1


def test_a_token_of_somebody_else_or_of_nobody_makes_nothing(
    people: cast.People, browse: Browse
) -> None:
    run = paid("token", people)
    other = opened(browse(people.reviewer), run, 1)["token"]
    for token in (other, "made up", ""):
        assert (
            posted(browse(people.starter), run, 1, do="go", token=token).status_code
            == 409
        )
    assert Run.objects.count() == 1


def test_the_page_asks_the_database_a_fixed_number_of_times(
    people: cast.People, browse: Browse
) -> None:
    run = paid("queries", people)
    client = browse(people.starter)
    path = client.get(url(run, 1)).url
    client.get(path)
    with CaptureQueriesContext(connection) as page:
        fields = fields_of(client.get(path).content.decode())
    with CaptureQueriesContext(connection) as fragment:
        client.post(path, {**fields, "do": "check"}, headers={"X-Fragment": "1"})
    for seq in range(run.head_seq + 1, run.head_seq + 40):
        a_checkpoint(run, seq, scratch={"notes": ["x"]})
    with CaptureQueriesContext(connection) as longer:
        client.get(path)
    # Three for the session, the person and his rights, three for the bar of the page. The
    # plan itself reads four things: the checkpoint with run and state, its line and how
    # the run began, what was done and forked elsewhere, and the checkpoints around. One
    # asks whether retention removed the run that this page made.
    assert len(page) == 3 + 3 + 4 + 1
    assert len(fragment) == 4 + 4 + 1
    assert len(longer) == len(page)


def test_a_replay_that_cannot_know_where_a_task_went_says_so_and_makes_nothing(
    people: cast.People, browse: Browse
) -> None:
    run = sent_on(people)
    client = browse(people.starter)
    here = url(run, 0)
    runs.advance(runs.replay(at(run, 0).id).id)
    pruned(policy("sent_on", keep_last=1))
    html = client.get(here, {"how": "replay"}, follow=True).content.decode()
    assert (
        "history of run sent on was removed, and with it where ask:1:0 went"
        in words(html)
    )
    answer = client.post(here, fields_of(html) | {"do": "go", "how": "replay"})
    assert answer.status_code == 422
    assert Run.objects.count() == 2
    assert "where ask:1:0 went" not in words(
        client.get(here, {"how": "fork"}, follow=True).content.decode()
    )


def test_a_replay_takes_nothing_and_touches_nothing(
    people: cast.People, browse: Browse
) -> None:
    run = paid("replayed", people)
    client = browse(people.starter)
    html = client.get(url(run, 1), {"how": "replay"}, follow=True).content.decode()
    text = words(html)
    assert "A replay changes nothing" in text
    assert "ask reused" in text
    assert "pay reused" in text
    assert "0 happen again 0 stop before 0 ask people" in text
    fields = fields_of(html) | {"do": "go"}
    assert {name for name in fields if name.startswith(("allow-", "a-", "s-"))} == set()
    first = client.post(url(run, 1), fields)
    again = client.post(url(run, 1), fields)
    new_run = runs.advance(first.url.split("/")[2])
    assert first.url == again.url
    assert new_run.status == Status.COMPLETED
    assert len(PAID) == 1
    assert Run.objects.count() == 2


NONSENSE = [
    "\x00",
    '{"scratch": {"letter": "\\ud800"}}',
    "9" * 5000,
    "[" * 500 + "]" * 500,
    '{"a": 1, "a": 2}',
    "NaN",
    "\u202e",
    "a/b:c",
    "²",
    "{" * 50,
    " ",
]
"""An odd number: every second name meets each of them on the other way."""


def test_nonsense_in_any_field_is_refused_or_read_and_changes_nothing(
    people: cast.People, browse: Browse
) -> None:
    run = paid("nonsense", people)
    client = browse(run_actions.reviewer(people.starter))
    drawn = opened(client, run, 2)
    # Each name with some values, each value with some names; a page reads all fields in
    # the same two ways.
    step = 3 if connection.vendor == "sqlite" else 5
    names = {*drawn, "mend", "ops", "c-ask.total", "allow-pay", "allow-nothing"} - {
        "reason"
    }
    before = rows_of(run)
    ways = itertools.cycle(["fork", "rewind"])
    begin = itertools.cycle(range(step))
    for name in sorted(names):
        for value in NONSENSE[next(begin) :: step]:
            how = next(ways)
            fields = {
                "mode": {"json": "json", "ops": "ops"}.get(name, "form"),
                "a-ask.total": "change",
                name: value,
            }
            answer = client.post(
                url(run, 2), {**drawn, "do": "check", "how": how, **fields}
            )
            assert answer.status_code in (200, 302, 409, 422), (name, value)
    assert rows_of(run) == before
    assert (
        posted(
            client, run, 2, do="go", how="fork", ops="[" * 500 + "]" * 500, mode="ops"
        ).status_code
        == 422
    )
    assert posted(client, run, 2, do="go", how="fork", key="\x00").status_code == 422
    assert Run.objects.count() == 1


def test_a_button_does_nothing_where_it_spoke_of_another_way(
    people: cast.People, browse: Browse
) -> None:
    run = paid("other_way", people)
    client = browse(people.starter)
    for do in ("go", "paused"):
        for how in ("rewind", "replay"):
            answer = posted(client, run, 1, how=how, shown="fork", do=do, reason="r")
            assert answer.status_code == 200
            assert Run.objects.count() == 1
    assert (
        posted(client, run, 1, how="rewind", do="paused", reason="r").status_code == 200
    )
    assert Run.objects.get(id=run.id).line == 1


def test_a_review_that_was_opened_meanwhile_is_named_before_it_is_withdrawn(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("opened_meanwhile"))
    client = browse(people.starter)
    html = posted(client, run, 1, how="rewind", do="go", reason="r").content.decode()
    fields = fields_of(html) | {"sure": "yes", "seen": ""}
    assert "1 open review is withdrawn" in words(
        client.post(url(run, 1), fields).content.decode()
    )
    assert Run.objects.get(id=run.id).line == 1


def test_where_nobody_can_go_on_the_page_says_why(
    people: cast.People, browse: Browse
) -> None:
    run = paid("replayed_page", people)
    replay = runs.advance(runs.replay(f"{run.key}:initial", by=people.starter).id)
    client = browse(people.starter)
    answer = client.get(url(replay, 2), follow=True)
    assert answer.status_code == 409
    assert "asked nobody at this checkpoint" in words(answer.content.decode())
    assert client.get(url(replay, 2), {"how": "replay"}, follow=True).status_code == 200


def test_odd_operations_are_a_problem(people: cast.People, browse: Browse) -> None:
    run = paid("odd_operations", people)
    answer = posted(browse(people.starter), run, 1, mode="ops", ops='{"scratch": [3]}')
    assert answer.status_code == 200
    assert "1 problem" in words(answer.content.decode())


def test_the_page_takes_an_alias_where_it_takes_an_id(
    people: cast.People, browse: Browse
) -> None:
    run = paid("by_alias", people)
    client = browse(people.starter)
    by_id = words(client.get(url(run, 1), follow=True).content.decode())
    for alias in ("at-1", "step-1", "line-1:step-1"):
        assert (
            words(
                client.get(
                    f"/checkpoints/{run.key}:{alias}/go-on/", follow=True
                ).content.decode()
            )
            == by_id
        )
    assert (
        client.get(f"/checkpoints/{run.key}:initial/go-on/", follow=True).status_code
        == 200
    )
    for wrong in (f"{run.key}:step-99", f"{run.key}:", "nothing", "a:b:c"):
        assert client.get(f"/checkpoints/{wrong}/go-on/").status_code == 404
    assert (
        browse(people.nobody).get(f"/checkpoints/{run.key}:initial/go-on/").status_code
        == 404
    )
