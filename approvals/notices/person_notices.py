"""The notices in the console that become of those that wait: a row for each person who
is meant, in the transaction that passes the notice on, so that none is lost and none is
written twice.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from approvals.models import MailPreference, Notice, PersonNotice
from approvals.notices.mail_recipients import accounts_for
from approvals.people.notice_list import kind_of


def new_person_notices(notices: Sequence[Notice]) -> list[PersonNotice]:
    """Return the rows of these notices for the people who hear of them in the console.
    Up to five queries for each notice, and one.
    """
    rows: list[PersonNotice] = []
    for notice in notices:
        run = notice.run
        if run is None or not kind_of(notice.event):
            continue
        for person in accounts_for(notice).values_list("pk", flat=True):
            rows.append(_row(notice, run, person))
    muted = _muted_kinds({row.user_id for row in rows})
    return [row for row in rows if kind_of(row.event) not in muted.get(row.user_id, ())]


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


def _muted_kinds(people: set[Any]) -> dict[Any, list[str]]:
    """Return the kinds that these people do not want to be listed, by their ids."""
    chosen = MailPreference.objects.filter(user__in=people)
    return dict(chosen.values_list("user", "muted"))
