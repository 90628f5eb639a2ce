"""Erasing by API, page, command and admin; what is kept outside sealed rows; and what
an erased run's pages say.
"""

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.test import Client as Browser
from django.urls import reverse

from approvals import reviews
from approvals.models import ApprovalRequest, Receipt, RequestComment
from checkpoints import retention, timeline, verification
from checkpoints.core.tombstone import tombstone
from checkpoints.models import AuditLine, Checkpoint, ErasureRecord, Job, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.store import CheckpointStore
from orchestrator import runs
from orchestrator.engine.errors import WrongStatus
from orchestrator.jobs import kinds
from orchestrator.models import BulkFork, IdempotencyRecord
from orchestrator.templatetags.console import moment
from orchestrator.travel import bulk_fork
from tests.support import cast, erasures, histories, run_actions, secret_claim
from tests.support.api_people import Client
from tests.support.full_installation import a_full_run
from tests.support.secret_claim import marked
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: cast.People, tmp_path: Path) -> Run:
    """A small run that has ended."""
    return a_full_run(tmp_path, people.reviewer)


@pytest.fixture
def browse() -> Callable[[User], Browser]:
    """A browser of somebody who is signed in."""

    def open_for(user: User) -> Browser:
        browser = Browser()
        browser.force_login(user)
        return browser

    return open_for


Browse = Callable[[User], Browser]


def test_a_steward_erases_by_the_api_and_is_given_the_record(
    run: Run, people: cast.People
) -> None:
    stella = Client(people.steward)
    plan = stella.post(f"runs/{run.id}/erase/", {"dry_run": True}).json()
    assert plan["rows"]["checkpoints_checkpoint"] > 0
    assert not ErasureRecord.objects.exists()
    body = {"reason": "asked", "confirm": run.key}
    answer = stella.post(f"runs/{run.id}/erase/", body, **{"Idempotency-Key": "once"})
    assert answer.status_code == 202, answer.json()
    record = answer.json()
    assert record["run"] == str(run.id)
    assert record["by"] == "stella"
    assert record["reason"] == "asked"
    assert record["paths"] == []
    assert record["ended_at"] is None
    assert stella.post(f"checkpoints/{run.key}:at-1/fork/").json()["code"] == "erased"
    assert stella.post(f"runs/{run.id}/erase/", body).json()["id"] == record["id"]
    other = {"paths": ["payout"], "confirm": run.key}
    assert stella.post(f"runs/{run.id}/erase/", other).status_code == 409
    assert kinds.advance(Job.objects.get(kind="erase_run").id).error == ""
    [ended] = stella.get(f"runs/{run.id}/erase/").json()["results"]
    assert ended["id"] == record["id"]
    assert ended["rows"] > 0
    assert ended["ended_at"] is not None
    again = stella.post(f"runs/{run.id}/erase/", body, **{"Idempotency-Key": "once"})
    assert again.json() == record
    assert stella.post(f"runs/{run.id}/erase/", {"confirm": run.key}).status_code == 410
    assert stella.post(f"checkpoints/{run.key}:at-1/fork/").json()["code"] == "erased"
    assert stella.get(f"runs/{run.id}/").status_code == 200
    assert verification.verify_run(run.id) == []


def test_bad_input_is_refused_with_a_clear_answer_and_changes_nothing(
    run: Run, people: cast.People, tmp_path: Path
) -> None:
    stella = Client(people.steward)
    live = run_actions.start("gated", tmp_path, by=people.starter)
    before = contents()
    for path, body, status in (
        (run.id, {"paths": ["payout.nobody"]}, 404),
        (run.id, {"paths": ["payout.."]}, 422),
        (run.id, {"paths": []}, 422),
        (run.id, {"paths": "payout"}, 400),
        (run.id, {"path": ["payout"]}, 400),
        (run.id, {"reason": "x" * 10_001}, 400),
        (live.id, {}, 409),
        ("nowhere", {}, 404),
    ):
        key = run.key if path == run.id else live.key
        answer = stella.post(f"runs/{path}/erase/", {"confirm": key, **body})
        assert answer.status_code == status, (body, answer.json())
    assert contents() == before


@pytest.mark.parametrize("typed", [None, "", "another key"])
def test_a_post_in_which_the_key_of_the_run_is_not_typed_erases_nothing(
    typed: str | None, run: Run, people: cast.People
) -> None:
    stella = Client(people.steward)
    body = {} if typed is None else {"confirm": typed}
    before = contents()
    answer = stella.post(f"runs/{run.id}/erase/", body)
    assert answer.status_code == 422
    assert answer.json()["path"] == "confirm"
    assert contents() == before


def test_a_token_that_may_steer_cannot_erase(run: Run, people: cast.People) -> None:
    answer = Client(people.steward, scopes=["steer"]).post(
        f"runs/{run.id}/erase/", {"confirm": run.key}
    )
    assert answer.status_code == 403
    assert not ErasureRecord.objects.exists()


def test_a_token_for_erasing_erases_and_does_nothing_else(
    run: Run, people: cast.People
) -> None:
    stella = Client(people.steward, scopes=["erase"])
    assert stella.post(f"runs/{run.id}/cancel/").status_code == 403
    assert stella.post(f"runs/{run.id}/erase/", {"confirm": run.key}).status_code == 202


def test_only_who_manages_retention_erases(
    run: Run, people: cast.People, browse: Browse
) -> None:
    before = contents()
    for user in (people.starter, people.auditor):
        assert Client(user).post(f"runs/{run.id}/erase/").status_code == 403
        answer = browse(user).post(
            reverse("erase", args=[run.id]), {"confirm": run.key}
        )
        assert answer.status_code == 403
        with pytest.raises(CommandError, match="lack the right manage_retention"):
            call_command("erase", str(run.id), by=user.get_username())
    assert Client(people.nobody).post(f"runs/{run.id}/erase/").status_code == 404
    assert browse(people.nobody).get(reverse("erase", args=[run.id])).status_code == 404
    assert AuditLine.objects.filter(kind="refused_erase", run=run.id).count() == 2
    assert not ErasureRecord.objects.exists()
    assert before != ""


def test_the_page_names_what_would_go_and_wants_the_key_typed(
    run: Run, people: cast.People, browse: Browse
) -> None:
    fork = runs.fork(f"{run.key}:at-1", by=people.starter)
    stella = browse(people.steward)
    url = reverse("erase", args=[run.id])
    html = stella.get(url).content.decode()
    assert re.search(r"<dt>checkpoints</dt>\s*<dd>\d+</dd>", html)
    assert "checkpoints_" not in html
    assert str(fork.id) in html
    assert re.search(r"Values in \d+ checkpoints, .*\d+ decisions?", html)
    assert fork.key in html.split('data-test="inherited"')[1].split("</ul>")[0], (
        "label and key"
    )
    for typed in ("", "yes", run.key.upper() + "x"):
        assert stella.post(url, {"confirm": typed}).status_code == 422
    assert not ErasureRecord.objects.exists()
    answer = stella.post(url, {"confirm": run.key, "paths": "payout.nobody"})
    assert answer.status_code == 422
    assert "payout.nobody" in answer.content.decode()
    assert not ErasureRecord.objects.exists()
    answer = stella.post(url, {"confirm": run.key, "reason": "asked to be forgotten"})
    assert answer.status_code == 302
    assert answer.url == reverse("run", args=[run.id])
    record = ErasureRecord.objects.get()
    assert record.reason == "asked to be forgotten"
    assert record.ended_at is None
    html = stella.get(answer.url).content.decode()
    assert "Values of this run are being erased" in html
    assert "This page says when it has ended" in html
    assert kinds.advance(Job.objects.get(kind="erase_run").id).error == ""
    assert (
        "The values of this run were erased" in stella.get(answer.url).content.decode()
    )


def test_the_page_names_forks_that_a_store_made(
    run: Run, people: cast.People, browse: Browse
) -> None:
    stella = browse(people.steward)
    url = reverse("erase", args=[run.id])
    assert "No other run has these values." in stella.get(url).content.decode()
    fork = CheckpointStore().fork(run.head or "")
    html = stella.get(url).content.decode()
    assert f"<code>{fork.run}</code>, a fork made by a store and never resumed" in html
    assert "No other run has these values." not in html
    assert stella.post(url, {"confirm": run.key, "forks": "on"}).status_code == 302
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == "done"
    assert not Checkpoint.objects.filter(run=fork.run).exists()


def test_the_pages_of_an_erased_run_say_what_was_erased_by_whom_and_when(
    run: Run, people: cast.People, browse: Browse
) -> None:
    record = retention.erase(run.id, reason="asked to be forgotten", by=people.steward)
    stella = browse(people.steward)
    receipt = Receipt.objects.get(run=run.id)
    pages = [reverse("run", args=[run.id]), reverse("review", args=[run.id])]
    pages += [
        f"{pages[0]}?tab={tab}"
        for tab in ("state", "writes", "results", "events", "changed")
    ]
    pages += [
        f"{pages[0]}?at={row.seq}&tab=state"
        for row in timeline.list_checkpoints(run.id)
    ]
    for page in pages:
        html = " ".join(stella.get(page).content.decode().split())
        assert "The values of this run were erased" in html, page
        assert 'data-test="tampered"' not in html, page
        assert "by stella" in html
        assert "asked to be forgotten" in html
        assert str(record.id) in html
        assert moment(record.ended_at) in html
        assert "cannot be opened" not in html
    answer = browse(people.reviewer).get(reverse("receipt", args=[receipt.id]))
    assert "were erased" in answer.content.decode()
    html = stella.get(f"{pages[0]}?tab=state").content.decode()
    assert '<span class="nil">erased</span>' in html
    assert '"record"' not in html
    assert "Fork from" not in html
    point = timeline.list_checkpoints(run.id)[0]
    answer = stella.get(reverse("go_on", args=[point.id]), {"how": "fork"}, follow=True)
    assert answer.status_code == 410
    assert "were erased" in answer.content.decode()
    for page in ("runs", "workers", "inbox"):
        assert stella.get(reverse(page)).status_code == 200
    assert (
        stella.get(reverse("compare"), {"a": str(run.id), "b": str(run.id)}).status_code
        == 200
    )
    history = Client(people.steward).get(f"runs/{run.id}/history/", path="payout")
    assert history.status_code == 200


def test_the_pages_name_the_paths_that_were_erased_and_each_erasure(
    run: Run, people: cast.People, browse: Browse
) -> None:
    for path in ("payout", "input.folder"):
        retention.erase(run.id, [path], reason=f"about {path}", by=people.steward)
    answer = browse(people.steward).get(reverse("run", args=[run.id]))
    html = " ".join(answer.content.decode().split())
    for record in ErasureRecord.objects.filter(run=run.id):
        assert (
            f"Values at <code>{record.paths[0]}</code> were erased,"
            f" {moment(record.ended_at)} by stella" in html
        )
        assert f"about {record.paths[0]}" in html
    assert "The values of this run were erased" not in html


def test_the_admin_leads_to_the_page_for_one_run(
    run: Run, people: cast.People, browse: Browse
) -> None:
    people.steward.is_staff = True
    people.steward.save()
    stella = browse(people.steward)
    url = reverse("admin:checkpoints_run_changelist")
    answer = stella.post(url, {"action": "erase", "_selected_action": [str(run.id)]})
    assert answer.status_code == 302
    assert answer.url == reverse("erase", args=[run.id])
    retention.erase(run.id, by=people.steward)
    for model in ("erasurerecord", "erasedrow"):
        assert (
            stella.get(reverse(f"admin:checkpoints_{model}_changelist")).status_code
            == 200
        )
    assert (
        stella.get(reverse("admin:checkpoints_run_change", args=[run.id])).status_code
        == 200
    )


def test_the_command_finds_runs_by_an_indexed_fact(people: cast.People) -> None:
    secret_claim.registered(encrypted=False)
    inputs = [
        {"branch": marked("fact")},
        {"branch": marked("fact")},
        {"branch": "other"},
    ]
    made = [
        runs.start("secret_claim", content, by=people.starter) for content in inputs
    ]
    for run in (made[0], made[2]):
        runs.cancel(run.id, by=people.starter)
    out = StringIO()
    errors = StringIO()
    options: dict[str, Any] = {
        "fact": f"Branch={marked('fact')}",
        "as_json": True,
        "stdout": out,
        "stderr": errors,
    }
    with pytest.raises(CommandError, match="1 of 2"):
        call_command("erase", dry_run=True, **options)
    assert not ErasureRecord.objects.exists()
    runs.cancel(made[1].id, by=people.starter)
    out.truncate(out.seek(0))
    call_command("erase", reason="asked", **options)
    reported = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [content["run"] for content in reported] == [
        str(made[0].id),
        str(made[1].id),
    ]
    assert Run.objects.get(id=made[2].id).facts == {"Branch": "other"}
    assert "fact" not in erasures.marks_in(erasures.everything())
    with pytest.raises(CommandError, match="no run has the fact"):
        call_command("erase", **options)
    with pytest.raises(CommandError, match="NAME=VALUE"):
        call_command("erase", fact="Branch")
    with pytest.raises(CommandError, match="1 of 1"):
        call_command("erase", str(made[0].id), stderr=errors)
    assert "erased already" in errors.getvalue()
    named_twice = [str(made[0].id), made[0].key]
    with pytest.raises(CommandError, match="1 of 1"):
        call_command("erase", *named_twice, stderr=errors)


def test_the_command_takes_runs_of_one_graph_with_a_fact_and_leaves_those_of_others(
    people: cast.People,
) -> None:
    secret_claim.registered(encrypted=False)
    run = runs.start(
        "secret_claim",
        {"person": marked("input"), "branch": marked("fact")},
        by=people.starter,
    )
    runs.cancel(run.id, by=people.starter)
    other = histories.short_run("other")
    # As a run of another graph with the same fact, whose state has no such path.
    Run.objects.filter(id=other.id).update(facts={"Branch": marked("fact")})
    out = StringIO()
    fact = f"Branch={marked('fact')}"
    options: dict[str, Any] = {
        "fact": fact,
        "paths": ["input.person"],
        "stdout": out,
        "stderr": StringIO(),
    }
    with pytest.raises(CommandError, match="1 of 2"):
        call_command("erase", dry_run=True, **options)
    call_command("erase", graph="secret_claim", as_json=True, **options)
    assert json.loads(out.getvalue().splitlines()[-1])["run"] == str(run.id)
    assert Run.objects.get(id=other.id).erasure is None
    with pytest.raises(CommandError, match="no run of the graph nothing has the fact"):
        call_command("erase", fact=fact, graph="nothing")
    with pytest.raises(CommandError, match="--graph goes with --fact"):
        call_command("erase", str(run.id), graph="secret_claim")


@pytest.mark.parametrize("encrypted", [False, True])
def test_answers_that_are_kept_and_the_admins_history_hold_nothing_of_an_erased_run(
    people: cast.People, configure: Any, encrypted: bool
) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    olive = Client(people.starter)
    body = {
        "graph": "secret_claim",
        "input": {"person": marked("input"), "branch": marked("fact")},
    }
    run = Run.objects.get(
        id=olive.post("runs/", body, **{"Idempotency-Key": "a"}).json()["id"]
    )
    other = olive.post(
        "runs/", {"graph": "secret_claim", "input": {}}, **{"Idempotency-Key": "b"}
    ).json()
    LogEntry.objects.create(
        user=people.steward,
        content_type=ContentType.objects.get_for_model(Run),
        object_id=str(run.id),
        object_repr=marked("label"),
        action_flag=CHANGE,
    )
    olive.post(
        f"runs/{run.id}/cancel/", {"reason": marked("why")}, **{"Idempotency-Key": "c"}
    )
    retention.erase(run.id, by=people.steward)
    assert erasures.marks_in(erasures.everything()) == set()
    again = olive.post("runs/", body, **{"Idempotency-Key": "a"})
    assert again.status_code == 410
    assert again.json()["code"] == "erased"
    assert (
        olive.post(
            "runs/", {"graph": "secret_claim", "input": {}}, **{"Idempotency-Key": "b"}
        ).json()
        == other
    )
    assert IdempotencyRecord.objects.count() == 3


@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ({"letter": "Ada", "sent": "no"}, {"letter": None, "sent": "no"}),
        (
            [{"op": "add", "path": "/letter", "value": "Ada"}],
            [{"op": "add", "path": "/letter", "value": None}],
        ),
    ],
)
def test_a_short_text_at_an_erased_path_goes_from_the_patch_of_a_bulk_fork(
    people: cast.People, patch: Any, left: Any
) -> None:
    secret_claim.registered(encrypted=False)
    origin = runs.cancel(
        runs.start("secret_claim", {"person": "A"}, by=people.starter).id,
        by=people.starter,
    )
    job = bulk_fork.fork_many(
        [str(origin.head)], patch={"scratch": patch}, by=people.steward
    )
    kinds.advance(job.id)
    bulk = BulkFork.objects.get(id=job.id)
    fork = runs.cancel(bulk.results.get().fork, by=people.starter)
    record = retention.erase(fork.id, ["letter"], by=people.steward)
    bulk.refresh_from_db()
    kept = json.dumps(read_value(bulk, "wanted")["patch"]["scratch"])
    assert kept.replace(json.dumps(tombstone(record.id)), "null") == json.dumps(left)
    assert list(verification.verify_run(fork.id)) == []


def test_an_answer_that_is_kept_while_a_run_is_erased_says_afterwards_that_it_was(
    people: cast.People,
) -> None:
    secret_claim.registered(encrypted=False)
    olive = Client(people.starter)
    body = {
        "graph": "secret_claim",
        "key": "K-1",
        "input": {"person": marked("input"), "branch": marked("fact")},
    }
    run = Run.objects.get(id=olive.post("runs/", body).json()["id"])
    runs.cancel(run.id, by=people.starter)
    job = erasures.worked_until(
        retention.begin_erasure(run.id, by=people.steward), "checkpoints"
    )
    reported = olive.post("runs/", body, **{"Idempotency-Key": "late"})
    assert "fact" in erasures.marks_in(reported.content)
    assert kinds.advance(job.id).error == ""
    assert erasures.marks_in(erasures.everything()) == set()
    assert (
        olive.post("runs/", body, **{"Idempotency-Key": "late"}).json()["code"]
        == "erased"
    )


def test_a_run_that_a_bulk_fork_made_is_refused_while_that_goes_on_and_nothing_is_changed(
    people: cast.People,
) -> None:
    secret_claim.registered(encrypted=False)
    heads = [runs.start("secret_claim", {}, by=people.starter).head for _ in "ab"]
    job = bulk_fork.fork_many(
        [head for head in heads if head], reason=marked("why"), by=people.steward
    )
    bulk = BulkFork.objects.get(id=job.id)
    row = bulk.results.order_by("id")[0]
    assert bulk_fork._fork_one(
        bulk, bulk_fork.WantedForks(reason=marked("why")), row.pk
    )
    fork = Run.objects.get(id=bulk.results.get(id=row.pk).fork)
    runs.cancel(fork.id, by=people.starter)
    before = contents()
    acts: list[Callable[..., Any]] = [retention.erase, retention.begin_erasure]
    for act in (*acts, lambda run, **_: retention.plan_erasure(run)):
        with pytest.raises(
            WrongStatus, match="the bulk fork that made this run is going on"
        ):
            act(fork.id, by=people.steward)
    assert contents() == before
    assert kinds.advance(job.id).status == "done"
    retention.erase(fork.id, by=people.steward)
    assert verification.verify_run(fork.id) == []


def test_an_erasure_takes_its_words_out_of_comments(
    run: Run, people: cast.People
) -> None:
    request = ApprovalRequest.objects.filter(run=run)[0]
    row = reviews.comment(request.id, "Marta has called.", by=people.steward)
    retention.erase(run.id, reason="asked", by=people.steward)
    there = RequestComment.objects.select_related("run").get(id=row.id)
    assert read_value(there, "text") == "[erased]"
    assert verification.verify_run(run.id) == []
