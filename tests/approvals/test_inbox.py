"""What waits for a person, found by one indexed query."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import inbox
from approvals.models import ApprovalRequest, RequestReviewer
from checkpoints.db import statements
from checkpoints.ledger.pending_writes import StoredBase
from checkpoints.sealing.sealed_columns import unpack_json
from tests.support.cast import People
from tests.support.rows import START, a_decision, a_request, a_run, a_write

pytestmark = pytest.mark.django_db


def test_the_inbox_holds_what_names_a_person_by_name_group_or_permission(
    people: People,
) -> None:
    people.reviewer.groups.add(Group.objects.create(name="claims"))
    run = a_run()
    mine = [
        a_request(run, p)
        for p in ("user:rita", "group:claims", "perm:approvals.decide")
    ]
    a_request(run, "user:ravi", "group:payments")
    assert list(inbox.waiting_for(people.reviewer)) == mine
    assert list(inbox.waiting_for(people.nobody)) == []


def test_what_names_a_person_twice_waits_once(people: People) -> None:
    request = a_request(a_run(), "user:rita", "group:reviewer", "perm:approvals.decide")
    assert list(inbox.waiting_for(people.reviewer)) == [request]


def test_what_is_settled_or_can_no_longer_be_decided_does_not_wait(
    people: People,
) -> None:
    a_request(a_run(), "user:rita", status="settled")
    for status in ("completed", "rejected", "cancelled", "tampered", "incompatible"):
        a_request(a_run(status=status), "user:rita")
    failed = a_request(a_run(status="failed"), "user:rita")
    assert list(inbox.waiting_for(people.reviewer)) == [failed]


def test_the_most_urgent_comes_first_and_then_the_oldest(people: People) -> None:
    run = a_run()
    old = a_request(run, "user:rita")
    late = a_request(run, "user:rita", deadline=START + timedelta(hours=5))
    soon = a_request(run, "user:rita", deadline=START + timedelta(hours=1))
    newest = a_request(run, "user:rita")
    assert list(inbox.waiting_for(people.reviewer)) == [soon, late, old, newest]


def test_pages_of_what_waits_have_what_the_inbox_has(people: People) -> None:
    for number in range(7):
        graph = "asks" if number % 2 else "pays"
        moment = START + timedelta(hours=number // 2)
        a_request(a_run(graph=graph), "user:rita", "group:reviewer", opened_at=moment)
    a_request(a_run(), "user:ravi")
    everything = list(inbox.waiting_for(people.reviewer, oldest_first=True))
    waiting = inbox.WaitingRequests(people.reviewer)
    for start in range(0, 8, 2):
        page = slice(start, start + 3)
        assert list(waiting[page]) == everything[page]
        backwards = waiting.order_by("-opened_at", "-id")
        assert list(backwards[page]) == everything[::-1][page]
    asks = [request for request in everything if request.graph == "asks"]
    assert list(inbox.WaitingRequests(people.reviewer, {"graph": "asks"})[:9]) == asks
    of_run = inbox.WaitingRequests(people.reviewer, {"run": asks[0].run_id})
    assert list(of_run[:9]) == asks[:1]
    later = waiting.filter(opened_at__gt=everything[1].opened_at)
    assert list(later[:9]) == everything[2:]
    assert list(inbox.WaitingRequests(people.nobody)[:9]) == []


def test_the_inbox_takes_one_query_besides_those_for_who_one_is(people: People) -> None:
    for _ in range(5):
        a_request(a_run(), "user:rita", title="Pay?")
    rita = people.reviewer
    with CaptureQueriesContext(connection) as queries:
        rows = [(r.run.key, unpack_json(r.title)) for r in inbox.waiting_for(rita)]
    assert len(rows) == 5
    # Groups with all permissions, the inbox.
    assert len(queries) == 2


def test_the_state_of_an_inbox_takes_one_query_besides_those_for_who_one_is(
    people: People,
) -> None:
    a_request(a_run(), "user:rita")
    a_request(a_run(), "user:rita", "group:reviewer")
    a_request(a_run(), "user:rita", status="applied")
    rita = people.reviewer
    with CaptureQueriesContext(connection) as queries:
        assert inbox.mark_of(rita).waiting == 2
    assert len(queries) == 2
    assert inbox.mark_of(people.nobody).waiting == 0


def test_the_inbox_is_found_by_index_among_many_requests(people: People) -> None:
    run = a_run()
    a_request(run, "user:rita")
    _fill(run, 3000)
    plan = inbox.waiting_for(people.reviewer, first=51).explain().splitlines()
    assert [line for line in plan if "reviewer_inbox" in line], plan
    assert not [
        line
        for line in plan
        # Nobody has claimed any, and an empty table is read whole.
        if re.search("(Seq Scan on|SCAN) approvals_(?!requestclaim)", line)
    ], plan


def _fill(run: object, number: int) -> None:
    first = ApprovalRequest.objects.get()
    names = [
        f.name
        for f in ApprovalRequest._meta.concrete_fields
        if f.name not in ("id", "visit", "status")
    ]
    common = {name: getattr(first, name) for name in names}
    made = [
        ApprovalRequest(**common, visit=10_000 + n, status="applied")
        for n in range(number)
    ]
    statements.insert_rows(ApprovalRequest, made)
    statements.insert_rows(
        RequestReviewer,
        [
            RequestReviewer(request=r, principal=f"user:u{n}")
            for n, r in enumerate(made)
        ],
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def test_what_one_signed_is_listed_as_long_as_one_may_see_the_run(
    people: People,
) -> None:
    people.reviewer.groups.add(claims := Group.objects.create(name="claims"))
    run = a_run()
    request = a_request(run, "group:claims")
    write = a_write(
        request, 0, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    assert list(inbox.signed_by(people.reviewer, is_open=True)) == [request]
    assert list(inbox.signed_by(people.reviewer, is_open=False)) == []
    people.reviewer.groups.remove(claims)
    assert list(inbox.signed_by(people.reviewer, is_open=True)) == []
    assert list(inbox.signed_by(people.auditor, is_open=True)) == []


def test_the_mark_changes_with_what_is_asked_and_decided_and_counts_what_waits(
    people: People,
) -> None:
    before = inbox.mark_of(people.reviewer)
    all_before = inbox.mark_of_all()
    a_request(run := a_run(), "user:ravi")
    assert inbox.mark_of(people.reviewer) == before
    assert inbox.mark_of_all() != all_before
    request = a_request(run, "user:rita")
    asked = inbox.mark_of(people.reviewer)
    assert before.waiting == 0
    assert asked.waiting == 1
    assert asked.is_capped is False
    write = a_write(
        request, 0, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.second_reviewer, verdict="approve", seq=1)
    assert inbox.mark_of(people.reviewer).mark not in (before.mark, asked.mark)


def test_what_one_signed_leaves_the_mark_with_the_right_to_see_its_run(
    people: People,
) -> None:
    people.reviewer.groups.add(claims := Group.objects.create(name="claims"))
    untouched = inbox.mark_of(people.second_reviewer)
    request = a_request(a_run(), "group:claims")
    write = a_write(
        request, 0, channel="payout", value=1, base=StoredBase("", {}, bound=True)
    )
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    people.reviewer.groups.remove(claims)
    assert inbox.mark_of(people.reviewer) == untouched
