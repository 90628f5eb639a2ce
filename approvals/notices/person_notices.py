"""The console's notices: a row for each person whom a waiting notice concerns, written
in the transaction that passes the notice on, so that none is lost or written twice.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from approvals import permissions
from approvals.list_columns import CAME_BACK, OPENED
from approvals.models import (
    ApprovalRequest,
    MailPreference,
    Notice,
    PersonNotice,
    RequestStatus,
)
from approvals.notice_rows import ESCALATED
from approvals.notices.mail_recipients import (
    TO_REVIEWERS,
    accounts_for,
    accounts_named,
    principals_meant,
)
from approvals.people.notice_list import kind_of
from checkpoints.models import Run

MOST_ROWS = 5_000
"""The most rows that one transaction writes for the people it notifies."""
TO_THOSE_NAMED = (OPENED, CAME_BACK, ESCALATED)
"""The events that concern only people whom the request names, and who therefore see its
run.
"""


def new_person_notices(
    notices: Sequence[Notice],
) -> tuple[list[PersonNotice], int]:
    """Return the console's rows for the first of these notices, and the number of
    notices they cover: as many as fit into `MOST_ROWS` rows, and at least one. Up to
    five queries for each notice, four for each person, and two.
    """
    audience = _Audience(notices)
    rows: list[PersonNotice] = []
    count = 0
    for notice in notices:
        people = audience.of(notice) if kind_of(notice.event) else []
        if count and len(rows) + len(people) > MOST_ROWS:
            break
        count += 1
        run = notice.run
        if run is None:
            continue
        for person in people:
            rows.append(_row(notice, run, person))
    return _of_chosen_kinds(_visible(rows)), count


class _Audience:
    """The people whom the notices of a batch concern. What the notices have in common
    is read once.
    """

    def __init__(self, notices: Sequence[Notice]) -> None:
        ids = {notice.request for notice in notices if notice.request is not None}
        requests = ApprovalRequest.objects.filter(id__in=ids).select_related("run")
        self._requests = requests.defer("run__input").in_bulk()
        self._people_by_principals: dict[tuple[str, ...], list[Any]] = {}

    def of(self, notice: Notice) -> list[Any]:
        """Return the ids of the people whom this notice concerns."""
        if notice.event not in TO_REVIEWERS:
            return list(accounts_for(notice).values_list("pk", flat=True))
        request = self._requests.get(notice.request)
        # A gate that signed automatically did not wait for people.
        if request is None or request.status != RequestStatus.OPEN:
            return []
        people = self._named(principals_meant(request, notice))
        if notice.event not in (OPENED, CAME_BACK):
            return people
        excluded = _excluded(request)
        return [person for person in people if person not in excluded]

    def _named(self, principals: Sequence[str]) -> list[Any]:
        """Return the ids of the people whom these principals name."""
        key = tuple(sorted(principals))
        if key not in self._people_by_principals:
            people = accounts_named(key).values_list("pk", flat=True)
            self._people_by_principals[key] = list(people)
        return self._people_by_principals[key]


def _excluded(request: ApprovalRequest) -> set[Any]:
    """Return the ids of the people whom four eyes exclude because of the start of the
    run. A tier may still ask them, to look after the review.
    """
    if not request.policy.get("four_eyes"):
        return set()
    return {request.run.started_by_id, request.run.on_behalf_of_id}


def _row(notice: Notice, run: UUID, person: Any) -> PersonNotice:
    return PersonNotice(
        user_id=person,
        notice=notice.id,
        event=notice.event,
        run=run,
        request=notice.request,
        outcome=notice.outcome,
        at=notice.at,
    )


def _visible(rows: Sequence[PersonNotice]) -> list[PersonNotice]:
    """Return the rows among these whose person may see the run now. Up to four queries
    for each person whom no request names.
    """
    runs_by_person: dict[Any, set[UUID]] = {}
    for row in rows:
        if row.event not in TO_THOSE_NAMED:
            runs_by_person.setdefault(row.user_id, set()).add(row.run)
    people = get_user_model()._default_manager.in_bulk(runs_by_person)
    seen: dict[Any, set[UUID]] = {}
    for key, person in people.items():
        runs = Run.objects.filter(id__in=runs_by_person[key])
        visible = permissions.visible_among(person, runs).order_by()
        seen[key] = set(visible.values_list("id", flat=True))
    return [
        row
        for row in rows
        if row.event in TO_THOSE_NAMED or row.run in seen.get(row.user_id, ())
    ]


def _of_chosen_kinds(rows: Sequence[PersonNotice]) -> list[PersonNotice]:
    """Return the rows among these of kinds that their person wants listed."""
    muted = _muted_kinds({row.user_id for row in rows})
    return [row for row in rows if kind_of(row.event) not in muted.get(row.user_id, ())]


def _muted_kinds(people: set[Any]) -> dict[Any, list[str]]:
    """Return the kinds that these people have muted, by their ids."""
    chosen = MailPreference.objects.filter(user__in=people)
    return dict(chosen.values_list("user", "muted"))
