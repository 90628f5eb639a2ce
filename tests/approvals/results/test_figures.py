"""Figures of gates: how often they ask, how long it takes, how people decide."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F

from approvals import deadlines, reviews
from approvals.models import ApprovalRequest, Decision, Sighting
from approvals.people.sightings import note_sightings, seen_row
from approvals.results import figures
from approvals.results.figures import GateFigures, is_capped
from checkpoints.ledger.pending_writes import StoredBase
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated, items_of
from tests.support.deadlines import HOUR, let_come
from tests.support.deadlines import gated as with_deadline
from tests.support.forging import rewrite
from tests.support.read_costs import ReadCost, cost_of
from tests.support.rows import START, a_decision, a_request, a_run, a_write
from tests.support.run_actions import pending, request, sign
from tests.support.small_graphs import advanced
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are given however few have signed."""
    monkeypatch.setattr(figures, "FEWEST_SIGNERS", 0)


def of(graph: str) -> GateFigures:
    (row,) = figures.figures(graph)
    return row


def opened_ago(run: Run, seconds: float) -> None:
    """Let the request of a run have been opened so long before it was settled."""
    row = request(run)
    assert row.settled_at is not None
    rewrite(row, opened_at=row.settled_at - timedelta(seconds=seconds))


def test_there_are_none_where_no_gate_has_asked() -> None:
    assert figures.figures() == []
    assert not is_capped([])


def test_what_a_policy_alone_has_signed_took_people_no_time(
    rita: User, few_are_enough: None
) -> None:
    answers = ["too much", True]

    def auto(state: Any, proposal: Any) -> Any:
        return answers.pop(0)

    flow = with_deadline("of-policy", deadline=None, auto=auto)
    run = advanced(flow)
    sign(run, rita, ["approve", "approve"])
    opened_ago(run, 20)
    assert advanced(flow).status == "completed"
    row = of("of-policy")
    assert (row.requests, row.decided) == (2, 1)
    assert row.seconds == pytest.approx(20)


def test_what_people_decided_is_counted_by_gate(
    rita: User, few_are_enough: None
) -> None:
    for seconds, verdict in ((10, "approve"), (20, "reject"), (90, "edit")):
        run = advanced(gated(f"of_{verdict}"))
        more: dict[str, Any] = {}
        if verdict == "edit":
            more["value"] = {"amount": "1"}
        reviews.sign(run.id, items_of(run, verdict, **more), by=rita)
        opened_ago(run, seconds)
    ApprovalRequest.objects.update(graph="payments")
    row = of("payments")
    assert (row.graph, row.gate) == ("payments", "propose")
    assert (row.requests, row.decided, row.overdue) == (3, 3, 0)
    assert row.seconds == pytest.approx(20)
    assert row.edited == row.rejected == pytest.approx(1 / 3)
    # Nobody noted what was on the screen.
    assert row.quick is None


@pytest.mark.parametrize(("signers", "are_shown"), [(4, False), (5, True)])
def test_where_few_have_signed_no_share_says_how_each_of_them_works(
    signers: int, *, are_shown: bool
) -> None:
    base = StoredBase(None, {}, bound=False)
    for number in range(signers):
        open_request = a_request(
            a_run(), "user:ann", settled_at=START, status="settled"
        )
        write = a_write(open_request, 0, channel="payout", value={}, base=base)
        by = cast.UserFactory.create()
        a_decision(write, open_request, by=by, verdict="approve", seq=1)
        # A second one of a person makes them no more.
        if number == 0:
            open_request = a_request(
                a_run(), "user:ann", settled_at=START, status="settled"
            )
            write = a_write(open_request, 0, channel="payout", value={}, base=base)
            a_decision(write, open_request, by=by, verdict="reject", seq=1)
    (row,) = figures.figures()
    assert row.requests == row.decided == signers + 1
    shown = [figure is not None for figure in (row.seconds, row.edited, row.rejected)]
    assert shown == [are_shown] * 3


def test_what_is_open_is_asked_and_not_decided() -> None:
    advanced(gated("waits"))
    row = of("waits")
    assert (row.requests, row.decided, row.overdue) == (1, 0, 0)
    assert row.seconds is row.edited is row.rejected is None


@pytest.mark.parametrize(("seconds", "share"), [(1, 1.0), (60, 0.0)])
def test_who_signs_at_first_sight_is_counted_as_quick(
    rita: User, few_are_enough: None, seconds: int, share: float
) -> None:
    run = advanced(gated("seen"))
    (row,) = pending(run)
    note_sightings(rita, [seen_row(request(run), row, opened=False)])
    reviews.sign(run.id, items_of(run), by=rita)
    decision = Decision.objects.get()
    sightings = rita_sightings(rita)
    sightings.update(at=decision.at - timedelta(seconds=seconds))
    assert of("seen").quick == share
    # What they saw later was not what they decided on.
    sightings.update(at=decision.at + timedelta(seconds=5))
    assert of("seen").quick is None


def rita_sightings(rita: User) -> Any:
    return Sighting.objects.filter(by=rita)


def test_the_decided_revision_of_two_counts(rita: User, few_are_enough: None) -> None:
    run = advanced(gated("revised", quorum=2))
    (row,) = pending(run)
    note_sightings(rita, [seen_row(request(run), row, opened=False)])
    rita_sightings(rita).update(at=F("at") - timedelta(seconds=60))
    edit = items_of(run, "edit", value={"amount": "1"})
    reviews.sign(run.id, edit, by=rita)
    # Their own edit is on the screen at once, and is no first sight of what they edited.
    (row,) = pending(run)
    note_sightings(rita, [seen_row(request(run), row, opened=False)])
    assert of("revised").quick == 0.0


@pytest.mark.parametrize("verdict", ["reject", "fail"])
def test_what_a_deadline_closed_is_overdue(verdict: str) -> None:
    run = advanced(gated("late", deadline=HOUR, on_deadline=verdict))
    let_come(run)
    # Open past it.
    assert of("late").overdue == 1
    assert deadlines.meet_deadline(run.id, request(run).id)
    row = of("late")
    assert (row.requests, row.decided, row.overdue) == (1, 0, 1)
    # Nobody rejected it.
    assert row.rejected is None


def test_graph_gate_and_time_choose_what_is_counted(people: cast.People) -> None:
    for graph, node, minutes in (("a", "x", 0), ("a", "y", 10), ("b", "x", 20)):
        at = START + timedelta(minutes=minutes)
        a_request(a_run(graph=graph), "user:ann", node=node, opened_at=at)

    def names(*arguments: Any) -> list[str]:
        return [f"{row.graph}.{row.gate}" for row in figures.figures(*arguments)]

    assert names() == ["a.x", "a.y", "b.x"]
    assert names("a") == ["a.x", "a.y"]
    assert names("a", "y") == ["a.y"]
    assert names(None, None, START + timedelta(minutes=10)) == ["a.y", "b.x"]
    assert names("c") == []
    with pytest.raises(InvalidValue, match="name the graph too"):
        names(None, "x")
    with pytest.raises(InvalidValue, match="no graph has this name"):
        names("\x00")


def test_only_the_newest_are_looked_at_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "MOST_REQUESTS", 2)
    for number in range(3):
        at = START + timedelta(minutes=number)
        a_request(a_run(), "user:ann", node=f"n{number}", opened_at=at)
    rows = figures.figures()
    assert [row.gate for row in rows] == ["n1", "n2"]
    assert is_capped(rows)
    assert not is_capped(figures.figures("claim_payout", "n0"))


def test_nobody_is_in_them() -> None:
    names = {field.name for field in fields(GateFigures)}
    assert names == {
        *("graph", "gate", "requests", "decided", "seconds", "overdue"),
        *("quick", "edited", "rejected"),
    }


def test_they_take_as_many_statements_however_many_there_are(rita: User) -> None:
    run = advanced(gated("few"))
    reviews.sign(run.id, items_of(run), by=rita)
    with counted() as few:
        figures.figures()
    for number in range(5):
        run = advanced(gated(f"more_{number}"))
        reviews.sign(run.id, items_of(run), by=rita)
    with counted() as many:
        assert len(figures.figures()) == 6
    assert len(many) == len(few)
    assert len([one for one in few if one.startswith("SELECT")]) <= 5


def test_one_gate_costs_no_more_beside_ten_times_as_many_others(rita: User) -> None:
    _others(rita, 10, node="ours")
    _others(rita, 40, node="theirs")
    before = _cost()
    _others(rita, 400, node="theirs")
    after = _cost()
    for figure, value in after.reads.items():
        slack = {"rows": 30, "buffers": 60, "steps": 1000}[figure]
        assert value <= 1.3 * before.reads[figure] + slack, (before, after)


def _others(by: User, number: int, *, node: str) -> None:
    """Add so many decided requests of a node."""
    base = StoredBase(None, {}, bound=False)
    for _ in range(number):
        open_request = a_request(a_run(), "user:ann", node=node)
        write = a_write(open_request, 0, channel="payout", value={}, base=base)
        a_decision(write, open_request, by=by, verdict="approve", seq=1)


def _cost() -> ReadCost:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return cost_of(lambda: figures.figures("claim_payout", "ours"))
