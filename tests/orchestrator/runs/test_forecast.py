"""What `check_versions` says of the runs that are under way, from columns alone."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints import threads, versions
from checkpoints.core.status import Status
from checkpoints.db.rows import new_row
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import GraphVersion, PendingWrite, Run
from checkpoints.queue import leases
from checkpoints.threads import ThreadWrite
from orchestrator import discovery, runs
from orchestrator.engine import Graph, registry
from orchestrator.engine.errors import IncompatibleGraph
from orchestrator.engine.versions.judgement import (
    GOES_ON,
    MIGRATED,
    NEEDS_MIGRATION,
    STUCK,
    WARNED,
)
from orchestrator.engine.versions.pending_parts import Pending
from orchestrator.runs.forecast import STAYS, forecast_runs
from orchestrator.worker import claimable
from tests.support import cast, run_actions
from tests.support.small_graphs import Notes, advanced, started
from tests.support.statements import counted
from tests.support.versioned_graphs import (
    Copied,
    Texts,
    deployed,
    in_euros,
    paying,
    signed_letter,
)

pytestmark = pytest.mark.django_db(transaction=True)


def verdicts() -> dict[str, int]:
    collected: Counter[str] = Counter()
    for group in forecast_runs():
        collected[group.judgement.verdict] += group.number
    return dict(collected)


def migrating(**options: Any) -> Graph:
    flow = paying("2", Texts, **options)
    flow.migration(from_version="1")(in_euros)
    return flow


DEPLOYMENTS: dict[str, tuple[Callable[[], Graph], dict[str, int], str]] = {
    "the same": (lambda: paying("1"), {STAYS: 2}, Status.COMPLETED),
    "a title, a label and a timeout": (
        lambda: paying("1", title="Send?"),
        {STAYS: 2},
        Status.COMPLETED,
    ),
    "a version": (lambda: paying("2"), {GOES_ON: 2}, Status.COMPLETED),
    "a channel": (lambda: paying("2", Copied), {WARNED: 2}, Status.COMPLETED),
    "a quorum of what is asked already": (
        lambda: paying("2", quorum=2),
        {GOES_ON: 2},
        Status.COMPLETED,
    ),
    "another type": (
        lambda: paying("2", Texts),
        {NEEDS_MIGRATION: 2},
        Status.INCOMPATIBLE,
    ),
    "another type, with a migration": (migrating, {MIGRATED: 2}, Status.COMPLETED),
    "another effect": (
        lambda: paying("2", effect="external"),
        {STUCK: 2},
        Status.INCOMPATIBLE,
    ),
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_what_it_says_of_a_deployment_is_what_becomes_of_the_runs(
    deployment: str, people: cast.People
) -> None:
    new, expected, end = DEPLOYMENTS[deployment]
    waiting = [advanced(paying("1")), advanced(paying("1"))]
    deployed(new())
    assert verdicts() == expected
    rita = run_actions.reviewer(people.reviewer)
    for run in waiting:
        if end == Status.INCOMPATIBLE:
            with pytest.raises(IncompatibleGraph):
                run_actions.sign(run, rita, ["approve"])
            assert Run.objects.get(id=run.id).status == Status.PAUSED
            continue
        run_actions.sign(run, rita, ["approve"])
        assert runs.advance(run.id).status == end


@pytest.mark.parametrize(
    ("before", "after", "verdict", "end"),
    [(1, 2, WARNED, Status.PAUSED), (2, 1, STUCK, Status.INCOMPATIBLE)],
)
def test_a_quorum_that_is_not_asked_yet_becomes_stricter_with_a_warning_and_never_easier(
    before: int, after: int, verdict: str, end: str, people: cast.People
) -> None:
    run = started(paying("1", quorum=before))
    deployed(paying("2", quorum=after))
    assert verdicts() == {verdict: 1}
    assert runs.advance(run.id).status == end
    if verdict == WARNED:
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
        assert runs.advance(run.id).status == Status.PAUSED, "one of two that must sign"


def test_runs_at_different_places_fare_differently_and_examples_name_them(
    people: cast.People,
) -> None:
    asking_run = advanced(paying("1"))
    begun = started(paying("1"))
    deployed(paying("2", nodes=("propose", "send")))
    examples = {
        group.judgement.verdict: (group.examples, group.judgement.in_words("breaking"))
        for group in forecast_runs()
    }
    on_its_way = "edge `START>fetch`: was removed, and the run was on its way along it"
    gone = "node `fetch`: was removed, and the run was about to go on there"
    unasked = (
        "gate of node `propose`: is not on the way any more, and the run was to"
        " be asked there"
    )
    assert examples[STUCK] == ([str(begun.id)], [gone, unasked, on_its_way])
    assert examples[WARNED] == ([str(asking_run.id)], [])


def test_a_run_of_which_people_are_asked_about_what_a_migration_changes_is_stuck(
    people: cast.People,
) -> None:
    class Number(Notes):
        letter: int = 0  # type: ignore[assignment]

    asking_run = advanced(paying("1"))
    begun = started(paying("1"))
    flow = paying("2", Number)
    flow.migration(from_version="1")(lambda state: state["scratch"].update(letter=1))
    deployed(flow)
    examples = {group.judgement.verdict: group.examples for group in forecast_runs()}
    assert examples == {STUCK: [str(asking_run.id)], MIGRATED: [str(begun.id)]}


def test_a_run_that_waits_for_a_patch_of_what_a_migration_changes_is_stuck(
    people: cast.People,
) -> None:
    run = started(paying("1"))
    deployed(migrating(guards=("letter", "total")))
    assert runs.advance(run.id).at_node == "$patch"
    flow = paying("3", guards=("letter", "total"))
    flow.migration(from_version="2")(_in_numbers)
    deployed(flow)
    assert verdicts() == {STUCK: 1}
    with pytest.raises(IncompatibleGraph):
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert Run.objects.get(id=run.id).status == Status.PAUSED


def test_it_says_of_how_many_runs_values_wait_whose_meaning_a_migration_must_not_change(
    people: cast.People,
) -> None:
    advanced(paying("1"))
    started(paying("1"))
    deployed(migrating())
    assert [
        (group.judgement.verdict, group.number, group.waiting)
        for group in forecast_runs()
    ] == [(MIGRATED, 2, 1)]
    warning = (
        "    1 of them have values that wait to be written: a migration that"
        " changes what such a value means stops"
    )
    assert warning in called()[0]
    Run.objects.update(pending="")
    assert [group.waiting for group in forecast_runs()] == [2], (
        "nobody wrote down where they stand"
    )


def _in_numbers(state: Any) -> None:
    state["scratch"]["total"] = 4
    del state["scratch"]["copy_to"]


def test_a_run_of_which_nobody_wrote_down_where_it_stands_may_need_every_part(
    people: cast.People,
) -> None:
    run = advanced(paying("1"))
    Run.objects.filter(id=run.id).update(pending="")
    deployed(paying("2", quorum=2))
    assert verdicts() == {WARNED: 1}, "whoever is not asked yet meets a stricter gate"
    deployed(paying("2", nodes=("fetch", "propose")))
    assert verdicts() == {STUCK: 1}
    run.refresh_from_db()
    assert versions.graph_for(run) is None


def test_workers_take_no_run_back_to_a_version_that_was_seen_before_its_own() -> None:
    deployed(paying("1"))
    deployed(paying("2"))
    run = started(paying("2"))
    discovery.note_versions()
    GraphVersion.objects.filter(version="2").update(current=False)
    deployed(paying("1"))
    (group,) = forecast_runs()
    assert group.judgement.verdict == STUCK
    assert runs.advance(run.id).status == Status.QUEUED
    assert leases.claim(worker=None, limit=9, only=claimable.claimable()) == []


def test_a_version_that_the_deployment_makes_current_is_used_though_it_was_seen_before() -> (
    None
):
    first = paying("1")
    second = paying("2", Copied)
    first.current = True
    deployed(first, second)
    run = started(first)
    discovery.note_versions()
    registry.clear()
    registry.replace(paying("2", Copied))
    assert verdicts() == {WARNED: 1}
    assert not GraphVersion.objects.get(version="2").current, "it writes nothing down"
    discovery.forget_noted()
    discovery.note_versions()
    assert runs.advance(run.id).status == Status.PAUSED
    assert verdicts() == {STAYS: 1}


def test_a_version_seen_before_the_current_one_is_older_though_it_would_be_noted_again() -> (
    None
):
    second = paying("2", Copied)
    first = paying("1")
    first.current = True
    deployed(second, first)
    discovery.note_versions()
    run = started(first)
    registry.clear()
    registry.replace(paying("2", Copied))
    assert verdicts() == {STUCK: 1}
    discovery.forget_noted()
    discovery.note_versions()
    assert runs.advance(run.id).status == Status.QUEUED
    assert verdicts() == {STUCK: 1}


def test_a_run_that_was_imported_counts_nowhere_for_no_worker_takes_it() -> None:
    run = advanced(paying("1"))
    Run.objects.filter(id=run.id).update(imported=True)
    deployed(paying("2", nodes=("fetch", "propose")))
    assert verdicts() == {}


def test_runs_at_one_place_that_fare_differently_each_have_an_example(
    people: cast.People,
) -> None:
    class Number(Notes):
        letter: int = 0  # type: ignore[assignment]

    both = [advanced(paying("1")), advanced(paying("1"))]
    first, second = sorted(both, key=lambda run: str(run.id))
    PendingWrite.objects.filter(run=second.id).update(channel="total")
    flow = paying("2", Number)
    flow.migration(from_version="1")(lambda state: state["scratch"].update(letter=1))
    deployed(flow)
    examples = {group.judgement.verdict: group.examples for group in forecast_runs()}
    assert examples == {STUCK: [str(first.id)], MIGRATED: [str(second.id)]}
    ApprovalRequest.objects.filter(run=second.id).update(status=RequestStatus.WITHDRAWN)
    examples = {group.judgement.verdict: group.examples for group in forecast_runs()}
    assert examples == {STUCK: [str(first.id)], MIGRATED: [str(second.id)]}


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (paying("1", Texts), NEEDS_MIGRATION),
        (paying("1", effect="external"), STUCK),
        (paying("1", Copied), WARNED),
    ],
)
def test_other_content_under_the_same_version_needs_another_version_first(
    new: Graph, verdict: str
) -> None:
    run = advanced(paying("1"))
    deployed(new)
    assert verdicts() == {verdict: 1}
    said = (
        "    raise the version: this one is called 1 too, so no migration can lead"
        " to it, and the old one cannot be"
    )
    assert (said in called()[0]) == (verdict != WARNED)
    (group,) = json.loads(called("--json")[0])["graphs"][0]["groups"]
    assert group["same_version"] == (verdict != WARNED)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    message = str((stored_error(runs.advance(run.id)) or {}).get("message"))
    assert ("raise the version" in message) == (verdict != WARNED)


def test_a_graph_that_is_not_here_and_one_that_is_older_leave_their_runs_to_nobody() -> (
    None
):
    started(paying("1"))
    deployed(paying("2"))
    started(paying("2"))
    deployed(paying("1"))
    stuck = {
        group.version: (group.judgement.verdict, group.judgement.in_words("breaking"))
        for group in forecast_runs()
    }
    assert stuck["1"][0] == STAYS
    assert stuck["2"][0] == STUCK
    assert "older version than others have had" in stuck["2"][1][0]
    registry.clear()
    GraphVersion.objects.update(current=False)
    assert verdicts() == {STUCK: 2}


def test_it_says_how_many_runs_hold_signed_values_that_a_migration_must_not_change(
    people: cast.People,
) -> None:
    behind = signed_letter(people)
    names = ("fetch", "propose", "file", "send")
    deployed(paying("2", Texts, guards=(), nodes=names))
    forecasts = [
        (group.judgement.verdict, group.number, group.signed)
        for group in forecast_runs()
    ]
    assert forecasts == [(NEEDS_MIGRATION, 1, 0)], "who signed can be asked again"
    deployed(paying("3", Texts, guards=(), nodes=("fetch", "file", "send")))
    text, code = called()
    assert code == 3
    assert (
        "    1 of them hold values that people sign, at a gate that is not here as strict any more"
        in text
    )
    ungated = paying("4", Texts, guards=(), nodes=("fetch", "file", "send"))
    ungated.migration(from_version="1")(
        lambda state: state["scratch"].update(total="three", letter="Yours")
    )
    deployed(ungated)
    assert json.loads(called("--json")[0])["graphs"][0]["groups"][0]["signed"] == 1
    assert verdicts() == {MIGRATED: 1}, "whether it changes them is known when it runs"
    assert runs.advance(behind.id).status == Status.INCOMPATIBLE


def test_a_run_counts_once_among_those_with_signed_values_however_others_there_fare(
    people: cast.People,
) -> None:
    signed_letter(people)
    asking_run = signed_letter(people)
    ApprovalRequest.objects.filter(run=asking_run.id).update(status=RequestStatus.OPEN)
    PendingWrite.objects.filter(run=asking_run.id).update(channel="notes")
    ungated = paying("2", Texts, guards=(), nodes=("fetch", "file", "send"))
    ungated.migration(from_version="1")(
        lambda state: state["scratch"].update(total="three", letter="Yours")
    )
    deployed(ungated)
    assert [
        (group.judgement.verdict, group.number, group.signed)
        for group in forecast_runs()
    ] == [(MIGRATED, 2, 1)]


def test_what_a_gate_declares_must_not_change_where_the_gate_is_gone_though_nobody_signed_it() -> (
    None
):
    run = started(paying("1"))
    Run.objects.filter(id=run.id).update(pending=Pending().to_text())
    deployed(paying("2", Texts, nodes=("fetch", "send")))
    assert [(group.judgement.verdict, group.signed) for group in forecast_runs()] == [
        (NEEDS_MIGRATION, 1)
    ]


def test_it_costs_as_many_statements_for_many_runs_as_for_few_and_opens_no_payload() -> (
    None
):
    advanced(paying("1"))
    deployed(paying("2", Copied))
    with counted() as few:
        forecast_runs()
    for _ in range(3):
        advanced(paying("2", Copied))
    deployed(paying("3"))
    with counted() as many:
        forecast_runs()
    assert len(many) <= len(few) == 3
    assert not [
        text
        for text in many
        if '"input"' in text or '"change"' in text or '"snapshot"' in text
    ]


def test_beside_many_runs_that_ended_it_reads_those_under_way() -> None:
    shared = {
        "graph": "paying",
        "version": "1",
        "fingerprint": "f",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    rows = [
        new_row(Run, key=f"ended-{n}", status="completed", **shared)
        for n in range(3000)
    ]
    Run.objects.bulk_create(rows, batch_size=500)
    advanced(paying("1"))
    # SQLite counts rows only where somebody tells it to; what an earlier test counted
    # is forgotten.
    forget = ("ANALYZE", "DELETE FROM sqlite_stat1", "ANALYZE sqlite_master")
    with connection.cursor() as cursor:
        for text in (
            ("VACUUM FULL ANALYZE",) if connection.vendor == "postgresql" else forget
        ):
            cursor.execute(text)
    calls: list[tuple[str, Any]] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        calls.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        forecast_runs()
    text, params = calls[0]
    with connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{text}",
            params,
        )
        plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
    assert "run_by_status" in plan, plan


def called(*options: str) -> tuple[str, int]:
    """Return what the command prints, and its exit code."""
    out = StringIO()
    try:
        call_command("check_versions", *options, stdout=out)
    except CommandError as error:
        return out.getvalue(), error.returncode
    return out.getvalue(), 0


def test_a_thread_of_another_engine_is_no_run_that_workers_take() -> None:
    origin = threads.ThreadOrigin("langgraph")
    threads.save_writes(
        "t", "", "1", [ThreadWrite("a", "", 0, "c", ("x", b""))], origin
    )
    assert Run.objects.get().status == Status.WAITING
    assert called() == ("No run is under way.\n", 0)


def test_the_command_says_it_for_people_for_machines_and_for_pipelines(
    tmp_path: Path,
) -> None:
    assert called() == ("No run is under way.\n", 0)
    run = advanced(paying("1"))
    deployed(paying("2", Copied))
    text, code = called()
    assert code == 0
    assert text.splitlines() == [
        "paying: 1 unfinished, version 2 is here",
        "  1 of version 1 go on, with a warning",
        "    warning: channel `copy_to`: is new, with the default archive",
        "    harmless: version: 1 became 2",
        f"    for example {run.id}",
    ]
    deployed(paying("3", Texts))
    text, code = called("--json", "--output", str(tmp_path / "report.json"))
    report = json.loads(text)
    assert code == 3
    assert report["checked"] == 1
    assert report["runs"][NEEDS_MIGRATION] == 1
    assert (
        "channel `total`: number became text"
        in report["graphs"][0]["groups"][0]["breaking"]
    )
    assert json.loads((tmp_path / "report.json").read_text()) == report
    deployed(paying("4", effect="external"))
    assert called()[1] == 4
    assert called("--output", str(tmp_path / "nowhere" / "report.json"))[1] == 1
