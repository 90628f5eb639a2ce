"""The inbox page shows what concerns a person, and only of runs that he may see."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import inbox
from approvals.drafts import DraftChoice, save_drafts
from approvals.models import ApprovalRequest
from checkpoints.ledger.pending_writes import StoredBase
from checkpoints.models import Checkpoint, PendingWrite, Run
from orchestrator import runs
from tests.support import deadlines, run_actions
from tests.support.cast import People, named
from tests.support.claims import decide_all
from tests.support.rows import a_decision, a_request, a_run, a_write

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("folder", "status"), [("signed", "open"), ("decided", "applied")]
)
def test_what_one_signed_leaves_the_folders_with_the_right_to_see_its_run(
    people: People, browse: Callable[[User], Client], folder: str, status: str
) -> None:
    people.reviewer.groups.add(claims := Group.objects.create(name="claims"))
    run = a_run(label="Payout of Nora Field")
    request = a_request(run, "group:claims", status=status)
    write = a_write(
        request, 0, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    client = browse(people.reviewer)
    assert (
        b"Payout of Nora Field"
        in client.get(reverse("inbox"), {"folder": folder}).content
    )
    people.reviewer.groups.remove(claims)
    page = client.get(reverse("inbox"), {"folder": folder})
    assert b"Payout of Nora Field" not in page.content
    assert [
        listed["count"]
        for listed in page.context["folders"]
        if listed["name"] == "signed"
    ] == [0]


def test_a_row_on_the_screen_says_how_it_was_settled_by_whom_and_when(
    people: People, browse: Callable[[User], Client], run: Run
) -> None:
    named(people.second_reviewer, "Ravi Shah")
    asked = ApprovalRequest.objects.get()
    decide_all(run, by=people.second_reviewer, verdict="reject")
    page = browse(people.reviewer).get(
        reverse("inbox_rows"), {"id": [str(asked.id), "nonsense"]}
    )
    assert [
        row.state[: len("rejected by Ravi Shah at ")] for row in page.context["rows"]
    ] == ["rejected by Ravi Shah at "]


def test_a_row_on_the_screen_is_not_told_to_whoever_may_not_see_its_run(
    people: People, browse: Callable[[User], Client], run: Run
) -> None:
    asked = ApprovalRequest.objects.get()
    page = browse(people.nobody).get(reverse("inbox_rows"), {"id": str(asked.id)})
    assert page.status_code == 200
    assert page.context["rows"] == []


def test_reviewers_are_called_by_their_names(
    people: People, browse: Callable[[User], Client]
) -> None:
    named(people.second_reviewer, "Ravi Shah")
    a_request(a_run(), "user:rita", "user:ravi", "user:gone", "group:claims")
    (row,) = browse(people.reviewer).get(reverse("inbox")).context["rows"]
    assert row.asked_of == "you, Ravi Shah, gone, claims"


def test_the_tab_counts_what_waits(
    people: People, browse: Callable[[User], Client]
) -> None:
    client = browse(people.reviewer)
    assert b"<title>Reviews" in client.get(reverse("inbox")).content
    a_request(a_run(), "user:rita")
    assert b"<title>(1) Reviews" in client.get(reverse("inbox")).content


def test_a_row_says_how_many_of_its_writes_are_signed(
    people: People, browse: Callable[[User], Client]
) -> None:
    run = a_run(label="Payout of Nora Field")
    request = a_request(run, f"user:{people.reviewer.username}", writes=3)
    write = a_write(
        request, 0, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    assert (
        b"1 of 4 signed"
        in browse(people.reviewer).get(reverse("inbox"), {"folder": "signed"}).content
    )


@pytest.mark.django_db(transaction=True)
def test_a_row_says_what_its_deadline_does_and_afterwards_that_it_did(
    people: People, browse: Callable[[User], Client]
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    waiting = deadlines.paused_run()
    page = browse(rita).get(reverse("inbox"))
    assert "then it is rejected" in page.content.decode()

    asked = run_actions.request(waiting)
    deadlines.let_come(waiting)
    deadlines.meet_deadline(waiting)
    page = browse(rita).get(reverse("inbox_rows"), {"id": [str(asked.id)]})
    [row] = page.context["rows"]
    assert row.state.startswith("rejected by the deadline at ")


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("mine", "Reviews asked of you or your groups are listed here."),
        ("drafts", "Reviews in which you have chosen something and not signed it."),
        ("back", "Reviews in which something that you signed has changed since."),
        ("back", "One that was re-opened is a new review, and is not among them."),
        ("signed", "Reviews that you signed, and that wait for others."),
        ("decided", "Reviews that you signed are listed here once they are decided."),
        ("expired", "Reviews asked of you or your groups that their deadline ended."),
        ("nonsense", "Reviews asked of you or your groups are listed here."),
    ],
)
def test_each_folder_says_what_it_holds_where_it_is_empty(
    people: People, browse: Callable[[User], Client], folder: str, says: str
) -> None:
    page = browse(people.reviewer).get(reverse("inbox"), {"folder": folder})
    assert says in page.content.decode()


def test_what_its_deadline_ended_is_in_a_folder_of_who_was_asked_and_of_nobody_else(
    people: People, browse: Callable[[User], Client]
) -> None:
    run = a_run(label="Payout of Nora Field")
    a_request(run, "user:rita", status="expired")
    for person, is_listed in ((people.reviewer, True), (people.nobody, False)):
        for query in ({}, {"q": "Nora"}):
            page = browse(person).get(reverse("inbox"), {"folder": "expired", **query})
            assert (b"Payout of Nora Field" in page.content) == is_listed


def test_what_is_the_same_in_every_row_is_left_out(
    people: People, browse: Callable[[User], Client]
) -> None:
    def columns() -> set[str]:
        page = browse(people.reviewer).get(reverse("inbox"))
        return set(page.context["columns"].split())

    a_request(a_run(graph="pays"), "user:rita")
    assert columns() == {"no-quor", "no-due"}
    a_request(a_run(graph="pays"), "user:rita")
    assert columns() == {"no-quor", "no-due", "no-graph", "no-asked"}
    a_request(a_run(graph="writes"), "user:rita", "group:claims")
    assert columns() == {"no-quor", "no-due"}


def test_a_review_that_is_open_after_its_deadline_is_overdue(
    people: People, browse: Callable[[User], Client]
) -> None:
    now = timezone.now()
    for minutes in (-30, 30):
        a_request(a_run(), "user:rita", deadline=now + timedelta(minutes=minutes))
    a_request(a_run(), "user:rita")
    page = browse(people.reviewer).get(reverse("inbox"))
    assert [row.is_overdue for row in page.context["rows"]] == [True, False, False]
    html = page.content.decode()
    assert html.count('data-test="overdue"') == 1
    assert "overdue by" in html


@pytest.mark.django_db(transaction=True)
def test_what_a_policy_signed_counts_in_its_row(
    people: People, browse: Callable[[User], Client]
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = deadlines.paused_run(
        deadline=None, quorum=2, reject_quorum=2, auto=lambda state, proposal: True
    )

    def row() -> str:
        address = reverse("inbox_rows")
        asked = {"id": str(ApprovalRequest.objects.get(run=run).id)}
        [shown] = browse(rita).get(address, asked).context["rows"]
        return f"{shown.signers}, {shown.signed} writes, {len(shown.slots)} lacking"

    assert row() == "['the policy of propose'], 2 writes, 1 lacking"
    run_actions.sign(run, rita, ["reject", "reject"])
    # Her rejections have taken out what it signed.
    assert row() == "['rita'], 2 writes, 1 lacking"


def _vetoed_run(rita: User) -> Run:
    """A run whose veto keeps open what rita approved."""
    run = deadlines.paused_run(veto=lambda state, proposal: "not today", deadline=None)
    run_actions.sign(run, rita, ["approve", "approve"])
    return runs.advance(run.id)


@pytest.mark.django_db(transaction=True)
def test_a_row_says_that_a_veto_keeps_open_what_everybody_signed(
    people: People, browse: Callable[[User], Client]
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    ravi = run_actions.reviewer(people.second_reviewer)
    run = _vetoed_run(rita)
    page = browse(ravi).get(reverse("inbox"))
    assert b"2 of 2 signed" in page.content
    assert b"a veto keeps it open" in page.content
    # A rejection of the one, and a newer revision of the other, are decided for
    # themselves.
    run_actions.sign(run, ravi, ["reject", None])
    total = run_actions.pending(run)[1]
    total.pk = None
    total.revision += 1
    total.save()
    assert b"a veto keeps it open" not in browse(ravi).get(reverse("inbox")).content


@pytest.mark.django_db(transaction=True)
def test_drafts_of_a_line_that_was_left_are_not_counted(
    people: People, browse: Callable[[User], Client]
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = deadlines.paused_run(deadline=None)
    _draft(run, rita)
    page = browse(rita).get(reverse("inbox"))
    assert [row.drafted for row in page.context["rows"]] == [2]
    first = Checkpoint.objects.filter(run=run).order_by("seq")[0]
    runs.advance(runs.rewind(run.id, first.id, by=people.steward).id)
    _draft(run, rita)
    page = browse(rita).get(reverse("inbox"))
    assert [row.drafted for row in page.context["rows"]] == [2]


def _draft(run: Run, by: User) -> None:
    asked = ApprovalRequest.objects.get(run=run, status="open")
    choices = [
        DraftChoice(str(row.write), row.revision, row.hash, "approve", "", {})
        for row in PendingWrite.objects.filter(run=run, line=asked.line)
    ]
    run.refresh_from_db()
    assert save_drafts(by, run, choices, number=1)


def test_a_folder_with_more_than_the_highest_count_says_so(
    people: People, browse: Callable[[User], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    people.reviewer.groups.add(Group.objects.create(name="claims"))
    for number in range(3):
        request = a_request(a_run(label=f"run {number}"), "group:claims")
        base = StoredBase("", {}, bound=True)
        write = a_write(request, 0, channel="payout", value=1, base=base)
        a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    for most, shown in ((3, "3"), (2, "2+")):
        monkeypatch.setattr(inbox, "MANY", most)
        page = browse(people.reviewer).get(reverse("inbox"))
        folders = {one["name"]: one for one in page.context["folders"]}
        for name in ("mine", "signed"):
            assert folders[name]["is_capped"] == shown.endswith("+")
        text = "".join(page.content.decode().split())
        assert f">{shown}</span>" in text
