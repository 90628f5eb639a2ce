"""`manage.py prune_runs`: the same count as the page, and what it then removes."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from checkpoints import retention
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from tests.support import cast
from tests.support.histories import faults, policy, seqs
from tests.support.large_states import large
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


def call(*args: str) -> str:
    out = io.StringIO()
    call_command("prune_runs", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


@pytest.fixture
def run() -> Run:
    return runs.advance(started(large("short", "abcd", snapshot=1000)).id)


def test_a_dry_run_counts_as_the_page_does_and_changes_nothing(run: Run) -> None:
    rule = policy("short", keep_last=2)
    document: dict[str, Any] = json.loads(call("--dry-run", "--json"))
    assert document == {"short": retention.dry_run(rule).json()}
    assert document["short"]["count"] == 3
    assert len(document["short"]["examples"]) == 3
    text = call("--dry-run", "short")
    assert "short: 3 checkpoints would be removed" in text
    assert "1: the newest of its run" in text
    assert len(seqs(run)) == 5


def test_it_removes_what_it_counted(run: Run, people: cast.People) -> None:
    policy("short", keep_last=2)
    document = json.loads(call("--json", "--by", people.steward.username))["short"]
    assert document["count"] == 3
    assert document["removed"]["rows"] == 3
    assert document["bytes"] == document["removed"]["bytes"]
    assert seqs(run) == [3, 4]
    assert faults() == []


def test_a_policy_that_keeps_nothing_wants_the_number(run: Run) -> None:
    policy("short", remove_runs_after_days={"completed": 0})
    for args in ([], ["--confirm", "4"]):
        with pytest.raises(CommandError, match="all 5 checkpoints"):
            call(*args)
    assert Checkpoint.objects.count() == 5
    call("--confirm", "5")
    assert not Run.objects.exists()


def test_a_policy_that_keeps_only_the_head_wants_the_number_too(run: Run) -> None:
    policy("short", keep_last=0)
    for args in ([], ["--confirm", "5"], ["--job"]):
        with pytest.raises(
            CommandError, match="only the 1 that must stay: 4 checkpoints"
        ):
            call(*args)
    assert len(seqs(run)) == 5
    call("--confirm", "4")
    assert seqs(run) == [run.head_seq]


def test_a_policy_that_removes_everything_by_ages_wants_the_number(run: Run) -> None:
    policy("short", max_age_days={"completed": 0})
    for args in ([], ["--confirm", "5"], ["--job"]):
        with pytest.raises(
            CommandError, match="only the 1 that must stay: 4 checkpoints"
        ):
            call(*args)
    assert len(seqs(run)) == 5
    call("--confirm", "4")
    assert seqs(run) == [run.head_seq]


def test_a_policy_with_an_age_of_no_days_wants_the_number_also_where_other_runs_are_kept(
    run: Run,
) -> None:
    started(large("short", "abcd", snapshot=1000))
    policy("short", max_age_days={"completed": 0, "queued": 30})
    with pytest.raises(CommandError, match="4 checkpoints would be removed"):
        call()
    assert len(seqs(run)) == 5


def test_a_policy_that_keeps_nothing_of_statuses_without_an_age_wants_the_number(
    run: Run,
) -> None:
    other = runs.advance(started(large("short", "abcd", snapshot=1000)).id)
    Run.objects.filter(id=other.id).update(status="failed")
    policy("short", keep_last=0, max_age_days={"failed": 90})
    with pytest.raises(CommandError, match="4 checkpoints would be removed"):
        call()
    assert len(seqs(run)) == 5


def test_what_cannot_be_done_is_one_clear_line(run: Run, people: cast.People) -> None:
    policy("short", keep_last=2)
    with pytest.raises(CommandError, match="no policy for other"):
        call("other")
    with pytest.raises(CommandError, match="lack the right manage_retention"):
        call("--by", people.reviewer.username)
    Checkpoint.objects.filter(run=run, seq=1).update(took_ms=99)
    with pytest.raises(CommandError, match="nothing was removed of 1 runs"):
        call()
    assert len(seqs(run)) == 5
