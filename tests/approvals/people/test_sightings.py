"""A gate that asks people to look before they decide: nothing counts before they did."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from approvals import deadlines, reviews
from approvals.models import Decision, Draft, Sighting
from approvals.people import sightings
from approvals.people.sightings import SeenRevision, note_sightings, seen_row
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.engine.errors import NotConsidered
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated
from tests.support.deadlines import HOUR, let_come
from tests.support.run_actions import pending, request
from tests.support.small_graphs import advanced
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

TEN = timedelta(seconds=10)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


def items_of(run: Run, verdict: str = "approve", *, first: int = 99) -> list[Any]:
    return [
        {"write": str(row.write), "hash": row.hash, "verdict": verdict}
        for row in pending(run)[:first]
    ]


def saw(
    run: Run, by: User, *, seconds: float = 0, opened: bool = False, first: int = 99
) -> None:
    """Have so many writes of a run on the screen since so many seconds ago."""
    open_request = request(run)
    rows = pending(run)[:first]
    note_sightings(by, [seen_row(open_request, row, opened=opened) for row in rows])
    shown = Sighting.objects.filter(by=by, write__in=[row.write for row in rows])
    shown.update(at=F("at") - timedelta(seconds=seconds))


def refused(run: Run, by: User, items: list[Any]) -> dict[str, Any]:
    """The facts with which a signature is refused that changes nothing."""
    with pytest.raises(NotConsidered) as refusal:
        reviews.sign(run.id, items, by=by)
    assert refusal.value.facts["page"] == f"/reviews/{run.id}/"
    return refusal.value.facts


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_nothing_counts_that_was_never_on_the_screen(rita: User, verdict: str) -> None:
    run = advanced(gated(considered=TEN))
    assert request(run).policy["considered"] == 10
    facts = refused(run, rita, items_of(run, verdict))
    assert facts["writes"] == [str(pending(run)[0].write)]
    assert (facts["seconds"], facts["unopened"]) == (10, 0)
    assert not Decision.objects.exists()
    assert request(run).status == "open"
    assert verify_run(run.id) == []


def test_what_was_seen_for_too_short_says_how_long_is_left(rita: User) -> None:
    run = advanced(gated(considered=timedelta(minutes=10)))
    saw(run, rita, seconds=200)
    assert 300 <= refused(run, rita, items_of(run))["seconds"] <= 400


def test_what_was_seen_for_long_enough_counts(rita: User) -> None:
    run = advanced(gated(considered=TEN))
    saw(run, rita, seconds=10)
    reviews.sign(run.id, items_of(run), by=rita)
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_what_somebody_else_saw_does_not_count(rita: User, ravi: User) -> None:
    run = advanced(gated(considered=TEN))
    saw(run, ravi, seconds=60)
    refused(run, rita, items_of(run))


def test_only_what_is_decided_must_have_been_seen(rita: User) -> None:
    run = advanced(gated(considered=TEN, many=3))
    saw(run, rita, seconds=60, first=2)
    facts = refused(run, rita, items_of(run))
    assert facts["writes"] == [str(pending(run)[2].write)]
    reviews.sign(run.id, items_of(run, first=2), by=rita)
    assert Decision.objects.count() == 2


def test_all_of_a_request_must_have_been_opened(rita: User) -> None:
    run = advanced(gated(considered="opened", many=3))
    saw(run, rita, seconds=60)
    facts = refused(run, rita, items_of(run, first=1))
    assert len(facts["writes"]) == 3
    assert (facts["seconds"], facts["unopened"]) == (0, 3)
    saw(run, rita, opened=True, first=2)
    assert refused(run, rita, items_of(run, first=1))["unopened"] == 1
    saw(run, rita, opened=True)
    reviews.sign(run.id, items_of(run, first=1), by=rita)
    assert Decision.objects.count() == 1


def test_what_is_settled_need_not_be_opened_any_more(rita: User, ravi: User) -> None:
    run = advanced(gated(considered="opened", many=2))
    saw(run, ravi, opened=True)
    reviews.sign(run.id, items_of(run, first=1), by=ravi)
    second = pending(run)[1]
    seen = seen_row(request(run), second, opened=True)
    note_sightings(rita, [seen])
    reviews.sign(run.id, items_of(run)[1:], by=rita)
    assert runs.advance(run.id).status == "completed"


def test_what_four_eyes_keep_from_a_person_need_not_be_opened(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(considered="opened", many=2, four_eyes=True))
    saw(run, rita, opened=True)
    edit = {**items_of(run, "edit")[0], "value": ["mine"]}
    reviews.sign(run.id, [edit], by=rita)
    # The other one is the same revision as before.
    reviews.sign(run.id, items_of(run)[1:], by=rita)
    refused(run, ravi, items_of(run)[:1])


def test_a_write_that_comes_back_edited_must_be_seen_anew(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(considered=TEN, quorum=2))
    for person in (rita, ravi):
        saw(run, person, seconds=60)
    edit = {**items_of(run, "edit")[0], "value": {"amount": "1"}}
    reviews.sign(run.id, [edit], by=ravi)
    assert refused(run, rita, items_of(run))["seconds"] == 10
    saw(run, rita, seconds=10)
    reviews.sign(run.id, items_of(run), by=rita)
    assert runs.advance(run.id).status == "completed"


def test_nothing_was_seen_in_a_fork_or_after_a_rewind(rita: User) -> None:
    run = advanced(gated(considered=TEN))
    saw(run, rita, seconds=60)
    fork = runs.advance(runs.fork(str(run.head), by=rita).id)
    refused(fork, rita, items_of(fork))
    runs.rewind(run.id, str(run.head), by=rita)
    run = runs.advance(run.id)
    newest = pending(run)[-1:]
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in newest
    ]
    refused(run, rita, items)


def test_an_answer_that_goes_with_a_fork_is_no_way_round(rita: User) -> None:
    run = advanced(gated(considered=TEN))
    saw(run, rita, seconds=60)
    answers = {"propose": {"payout": {"amount": "6000"}}}
    with pytest.raises(NotConsidered):
        runs.fork(str(run.head), answers=answers, by=rita)
    assert Run.objects.count() == 1


def test_a_deployment_of_an_easier_gate_changes_nothing_for_an_open_request(
    rita: User,
) -> None:
    run = advanced(gated("eased", considered=TEN))
    registry.replace(gated("eased"))
    refused(run, rita, items_of(run))


def test_a_deadline_decides_what_nobody_has_seen(rita: User) -> None:
    run = advanced(gated(considered=TEN, deadline=HOUR))
    let_come(run)
    assert deadlines.meet_deadline(run.id, request(run).id)
    assert Decision.objects.get().by_deadline


def test_a_gate_that_asks_for_nothing_costs_no_statement(rita: User) -> None:
    run = advanced(gated())
    with counted() as sent:
        reviews.sign(run.id, items_of(run), by=rita)
    assert not [query for query in sent if "approvals_sighting" in query]


def test_many_writes_are_looked_up_at_once(rita: User) -> None:
    for many in (2, 20):
        run = advanced(gated(f"of_{many}", considered=TEN, many=many))
        saw(run, rita, seconds=60)
        with counted() as sent:
            reviews.sign(run.id, items_of(run), by=rita)
        assert len([query for query in sent if "approvals_sighting" in query]) == 1


def test_the_drafts_of_a_person_stay_where_they_are_refused(rita: User) -> None:
    run = advanced(gated(considered=TEN))
    row = pending(run)[0]
    Draft.objects.create(
        run=run,
        by=rita,
        write=row.write,
        revision=1,
        seen_hash=row.hash,
        choice=b"",
        number=1,
        at=run.created_at,
    )
    refused(run, rita, items_of(run))
    assert Draft.objects.count() == 1


def test_the_writes_of_a_group_count_from_the_last_of_its_samples(rita: User) -> None:
    run = advanced(gated(many=4))
    open_request = request(run)
    rows = pending(run)
    saw(run, rita, seconds=60, first=1)
    saw(run, rita, seconds=20, opened=True, first=2)
    samples = list(Sighting.objects.order_by("id"))
    members = [
        (seen_row(open_request, row, opened=False), row.staged_at - timedelta(hours=1))
        for row in rows
    ]
    sightings.note_with_samples(rita, members, samples)
    last = max(sample.at for sample in samples)
    later = Sighting.objects.filter(write__in=[row.write for row in rows[2:]])
    assert {row.at for row in later} == {last}
    # A revision that was made later was not there yet.
    made_at = last + timedelta(seconds=5)
    revised = SeenRevision(run.id, open_request.id, rows[3].write, 2, opened=False)
    sightings.note_with_samples(rita, [(revised, made_at)], samples)
    assert Sighting.objects.get(write=rows[3].write, revision=2).at == made_at
