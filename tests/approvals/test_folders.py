"""What came back to a person, what they drafted and what its deadline ended stand in
folders of the inbox, and leave them with what they are about.
"""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals import drafts, folders, inbox, list_columns, permissions, reviews
from approvals.drafts import DraftChoice
from approvals.models import (
    ApprovalRequest,
    Draft,
    RequestDrafter,
    RequestReviewer,
    RequestSigner,
)
from checkpoints.db.together import read_together
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from tests.support import cast, deadlines, run_actions
from tests.support.confirmed_graphs import doubly_gated, gated, items_of
from tests.support.rows import a_request, a_run
from tests.support.run_actions import pending, request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db
EDITED = {"amount": "5000"}


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


def signed(run: Run, by: User, verdict: str = "approve", **more: Any) -> None:
    reviews.sign(run.id, items_of(run, verdict, **more), by=by)


def came_back(user: User) -> list[ApprovalRequest]:
    """Return what came back, after each row was compared with what it is copied from."""
    kept = list(RequestSigner.objects.order_by("id").values_list("behind", flat=True))
    _copy_anew()
    anew = list(RequestSigner.objects.order_by("id").values_list("behind", flat=True))
    assert kept == anew
    return list(folders.came_back_to(user))


def counts(user: User) -> dict[str, int]:
    principals = permissions.principals_of(user)
    rows = read_together(**folders.count_queries(user, principals))
    return {name: number for name, [number] in rows.items()}


def _copy_anew() -> None:
    names = list_columns._names()
    with connection.cursor() as cursor:
        for statement in list_columns.COPIES:
            cursor.execute(statement.format(**names))


def drafted(
    run: Run, by: User, row: PendingWrite, verdict: str = "approve", number: int = 1
) -> None:
    choice = DraftChoice(str(row.write), row.revision, row.hash, verdict, "", {})
    assert drafts.save_drafts(by, run, [choice], number=number)


def in_drafts(user: User) -> list[ApprovalRequest]:
    """Return what they have drafts of, after each row was compared with what it counts."""
    columns = ("request", "by", "run", "opened_at", "is_open", "drafts")
    rows = RequestDrafter.objects.order_by("id").values_list(*columns)
    kept = list(rows)
    _copy_anew()
    assert kept == list(rows)
    listed = list(folders.drafted_by(user))
    assert counts(user)["drafts"] == len(listed)
    return listed


# What came back.


def test_what_another_person_edited_comes_back_to_who_signed_it_before(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(quorum=2))
    signed(run, rita)
    assert came_back(rita) == []
    signed(run, ravi, "edit", value=EDITED)
    assert came_back(rita) == [request(run)]
    assert came_back(ravi) == []
    signed(run, rita)
    assert came_back(rita) == []
    assert request(run).status == "settled"


def test_it_comes_back_as_often_as_it_changes(rita: User, ravi: User) -> None:
    run = advanced(gated(quorum=3))
    signed(run, rita)
    signed(run, ravi, "edit", value=EDITED)
    signed(run, rita, "edit", value={"amount": "4000"})
    assert came_back(rita) == []
    assert came_back(ravi) == [request(run)]
    signed(run, ravi, "edit", value={"amount": "3000"})
    assert came_back(ravi) == []
    assert came_back(rita) == [request(run)]


def test_an_edit_of_ones_own_signature_does_not_come_back(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(quorum=2))
    signed(run, rita)
    signed(run, rita, "edit", value=EDITED)
    assert came_back(rita) == []


def test_a_review_of_many_writes_is_back_until_each_of_them_is_decided_again(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(many=3, quorum=2))

    def items(rows: list[PendingWrite], verdict: str, **more: Any) -> list[Any]:
        return [
            {"write": str(row.write), "hash": row.hash, "verdict": verdict, **more}
            for row in rows
        ]

    reviews.sign(run.id, items(pending(run), "approve"), by=rita)
    changed = items(pending(run)[:2], "edit", value=["changed"])
    reviews.sign(run.id, changed, by=ravi)
    assert came_back(rita) == [request(run)]
    assert RequestSigner.objects.get(by=rita).behind == 2
    reviews.sign(run.id, items(pending(run)[:1], "approve"), by=rita)
    assert came_back(rita) == [request(run)]
    reviews.sign(run.id, items(pending(run)[1:2], "approve"), by=rita)
    assert came_back(rita) == []


@pytest.mark.parametrize(
    "end", ["cancelled", "withdrawn", "right lost", "tampered", "incompatible"]
)
def test_what_cannot_be_decided_any_more_is_not_back(
    rita: User, ravi: User, end: str
) -> None:
    run = advanced(gated(quorum=2))
    signed(run, rita)
    signed(run, ravi, "edit", value=EDITED)
    assert came_back(rita) == [request(run)]
    if end == "cancelled":
        runs.cancel(run.id, by=User.objects.create_superuser("root"), reason="x")
        runs.advance(run.id)
    if end == "withdrawn":
        ApprovalRequest.objects.update(status="withdrawn")
    if end == "right lost":
        rita.groups.clear()
    if end in ("tampered", "incompatible"):
        Run.objects.update(status=end)
    assert came_back(rita) == []
    assert counts(rita)["back"] == 0


def test_of_a_review_that_is_asked_anew_what_was_signed_before_counts_for_itself(
    rita: User, ravi: User, people: cast.People
) -> None:
    run = deadlines.paused_run("anew", on_deadline="fail", quorum=2)
    run_actions.sign(run, rita, ["approve", None])
    deadlines.let_come(run)
    run = runs.advance(run.id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    run_actions.sign(run, rita, [None, "approve"])
    value = read_value(pending(run)[1], "value")
    run_actions.sign(run, ravi, [None, ("edit", value)])
    asked = ApprovalRequest.objects.get(run=run, status="open")
    assert came_back(rita) == [asked]
    run_actions.sign(run, rita, ["approve", None])
    assert came_back(rita) == [asked]


def test_the_mark_of_an_inbox_changes_when_something_comes_back(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(quorum=2))
    signed(run, rita)
    before = inbox.mark_of(rita)
    assert counts(rita)["back"] == 0
    signed(run, ravi, "edit", value=EDITED)
    assert inbox.mark_of(rita).mark != before.mark
    assert counts(rita)["back"] == 1


# Drafts.


def test_a_review_with_a_draft_stands_among_the_drafts_of_its_person_alone(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(many=2))
    for row in pending(run):
        drafted(run, rita, row)
    assert in_drafts(rita) == [request(run)]
    assert in_drafts(ravi) == []


def test_of_a_run_that_asks_twice_only_the_review_with_a_draft_is_listed(
    rita: User,
) -> None:
    run = advanced(doubly_gated())
    first = pending(run)[0]
    drafted(run, rita, first)
    asked = ApprovalRequest.objects.get(run=run, node=first.node)
    assert in_drafts(rita) == [asked]


@pytest.mark.parametrize("end", ["signed", "settled", "failed", "right lost"])
def test_drafts_leave_their_folder(rita: User, ravi: User, end: str) -> None:
    run = advanced(gated())
    drafted(run, rita, pending(run)[0])
    if end == "signed":
        signed(run, rita)
    if end == "settled":
        signed(run, ravi)
    if end == "failed":
        Run.objects.filter(id=run.id).update(status="tampered")
    if end == "right lost":
        rita.groups.clear()
    assert in_drafts(rita) == []
    # What was chosen is lost only where it was decided.
    assert Draft.objects.exists() == (end in ("failed", "right lost"))


def test_a_review_stands_among_drafts_until_the_last_of_them_is_removed(
    rita: User,
) -> None:
    run = advanced(gated(many=2))
    first, second = pending(run)
    drafted(run, rita, first)
    drafted(run, rita, second)
    drafted(run, rita, first, number=2)
    assert RequestDrafter.objects.get().drafts == 2
    drafted(run, rita, first, verdict="", number=3)
    assert in_drafts(rita) == [request(run)]
    drafted(run, rita, second, verdict="", number=3)
    assert in_drafts(rita) == []
    drafted(run, rita, second, number=4)
    assert in_drafts(rita) == [request(run)]
    ApprovalRequest.objects.update(status="withdrawn")
    assert in_drafts(rita) == []


def test_rows_of_drafts_that_were_written_without_triggers_are_made_later(
    rita: User,
) -> None:
    run = advanced(gated())
    list_columns.remove_triggers()
    drafted(run, rita, pending(run)[0])
    assert list(folders.drafted_by(rita)) == []
    list_columns.install_triggers()
    assert in_drafts(rita) == [request(run)]
    list_columns.remove_triggers()
    Draft.objects.all().delete()
    list_columns.install_triggers()
    assert in_drafts(rita) == []


def test_an_account_with_drafts_can_be_deleted(rita: User) -> None:
    run = advanced(gated())
    drafted(run, rita, pending(run)[0])
    rita.delete()
    assert not RequestDrafter.objects.exists()


# What its deadline ended.


@pytest.mark.parametrize("on_deadline", ["reject", "approve", "fail"])
def test_what_its_deadline_ended_is_listed_for_who_was_asked(
    rita: User, on_deadline: str, people: cast.People
) -> None:
    run = deadlines.paused_run(on_deadline=on_deadline)
    assert list(folders.expired_for(rita)) == []
    deadlines.let_come(run)
    assert deadlines.meet_deadline(run)
    asked = ApprovalRequest.objects.get(run=run)
    assert list(folders.expired_for(rita)) == [asked]
    assert list(folders.expired_for(people.nobody)) == []
    _all_are_copied()
    runs.advance(run.id)
    assert list(folders.expired_for(rita)) == [asked]
    _all_are_copied()
    RequestReviewer.objects.update(expired=False)
    list_columns.install_triggers()
    assert list(folders.expired_for(rita)) == [asked]
    rita.groups.clear()
    assert list(folders.expired_for(rita)) == []


def test_what_is_open_again_after_its_deadline_has_not_expired(rita: User) -> None:
    run = deadlines.paused_run(on_deadline="approve")
    rows = pending(run)
    deadlines.let_come(run)
    assert deadlines.meet_deadline(run)
    assert len(folders.expired_for(rita)) == 1
    ApprovalRequest.objects.update(status="open")
    assert list(folders.expired_for(rita)) == []
    _all_are_copied()
    # People decide the next revisions: what the deadline decided counts no more.
    for row in rows:
        row.pk = None
        row.revision = 2
        row.save()
    ApprovalRequest.objects.update(status="settled")
    assert list(folders.expired_for(rita)) == []
    _all_are_copied()


def _all_are_copied() -> None:
    rows = list_columns.with_copied(RequestReviewer.objects.all())
    assert [row.is_copied for row in rows] == [True]


def test_what_people_decided_in_time_did_not_expire(rita: User) -> None:
    run = deadlines.paused_run()
    run_actions.sign_open(run, rita, "approve")
    assert ApprovalRequest.objects.get().status == "settled"
    assert list(folders.expired_for(rita)) == []


def test_pages_of_what_expired_go_on_behind_their_last_row(
    people: cast.People,
) -> None:
    people.reviewer.groups.add(Group.objects.create(name="claims"))
    for _ in range(5):
        a_request(a_run(), "user:rita", "group:claims", status="expired")
    everything = list(folders.expired_for(people.reviewer))
    assert len(everything) == 5
    last = everything[2]
    place = inbox.InboxPlace(None, last.opened_at, last.id)
    assert list(folders.expired_for(people.reviewer, behind=place)) == everything[3:]
