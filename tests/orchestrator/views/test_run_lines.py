"""The page of a run that went back: its lines, what was withdrawn, and where it waits
for a yes or a start.
"""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Run
from orchestrator import runs
from orchestrator.display.run_names import run_name
from orchestrator.display.tape import tape_columns
from orchestrator.run_access.labels import needs_yes_of
from tests.support import cast, run_actions
from tests.support.paid_claims import PAID, claim, paid
from tests.support.small_graphs import advanced

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


def words(answer: object) -> str:
    """The words of a page."""
    html = answer.content.decode()  # type: ignore[attr-defined]
    return " ".join(
        strip_tags(html[html.index('id="past"') :].replace("<", " <")).split()
    )


def rewound(people: cast.People) -> Run:
    """A run that asked somebody, and then went back to before it asked."""
    run = advanced(claim("rewound"))
    return runs.advance(
        runs.rewind(
            run.id, f"{run.key}:at-1", by=people.starter, reason="wrong photos"
        ).id
    )


def test_both_lines_are_on_the_tape_and_the_superseded_one_is_readable(
    people: cast.People, browse: Browse
) -> None:
    run = rewound(people)
    client = browse(people.starter)
    html = client.get(f"/runs/{run.id}/").content.decode()
    main, left = html.split('role="listbox"')[1:3]
    assert [f'?at={n}"' in main for n in (0, 1, 2, 3)] == [True, True, False, True]
    assert '?at=2"' in left
    assert 'aria-label="Superseded line 1, left after 1"' in left
    text = words(client.get(f"/runs/{run.id}/?at=2&tab=writes"))
    assert "It is superseded: the run went back, and goes on on line 2" in text
    assert "line 1, superseded" in text
    assert "Pay 10 withdrawn ask:1:0" in text
    assert "Pay 10 ask:1:0" in words(client.get(f"/runs/{run.id}/?tab=writes"))


def test_steps_stay_on_the_line_that_counts(
    people: cast.People, browse: Browse
) -> None:
    run = rewound(people)
    html = browse(people.starter).get(f"/runs/{run.id}/?at=1").content.decode()
    assert f'href="/runs/{run.id}/?at=3" data-step="next"' in html
    html = browse(people.starter).get(f"/runs/{run.id}/?at=3").content.decode()
    assert f'href="/runs/{run.id}/?at=1" data-step="prev"' in html


def test_an_open_review_says_that_it_was_withdrawn(
    people: cast.People, browse: Browse
) -> None:
    run = advanced(claim("open_review"))
    request = ApprovalRequest.objects.get(run=run)
    client = browse(run_actions.reviewer(people.reviewer))
    runs.rewind(run.id, f"{run.key}:initial", by=people.starter, reason="again")
    html = client.get(f"/reviews/{run.id}/", {"seen": str(request.id)}).content.decode()
    assert "This was withdrawn" in html
    assert 'value="approve"' not in html


def test_a_run_that_stopped_before_an_effect_goes_on_with_a_yes_once(
    people: cast.People, browse: Browse
) -> None:
    run = paid("stopped", people)
    fork = runs.advance(runs.fork(f"{run.key}:at-3", by=people.starter).id)
    client = browse(people.starter)
    text = words(client.get(f"/runs/{fork.id}/"))
    assert "Stopped before pay" in text
    assert "has happened already, or may have" in text
    client.post(f"/runs/{fork.id}/resume/", {})
    assert Run.objects.get(id=fork.id).status == Status.PAUSED
    assert len(PAID) == 1
    for _ in range(2):
        client.post(f"/runs/{fork.id}/resume/", {"allow-pay": "yes"})
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.COMPLETED
    assert len(PAID) == 2


def test_a_fork_that_was_made_paused_is_started_from_its_page(
    people: cast.People, browse: Browse
) -> None:
    run = paid("not_started", people)
    fork = runs.fork(f"{run.key}:at-1", start=False, by=people.starter)
    client = browse(people.starter)
    assert "Not started yet" in words(client.get(f"/runs/{fork.id}/"))
    assert "Start it" in words(client.get(f"/runs/{fork.id}/"))
    client.post(f"/runs/{fork.id}/resume/")
    assert Run.objects.get(id=fork.id).status == Status.QUEUED
    assert "Start it" not in words(client.get(f"/runs/{fork.id}/"))


def test_a_paused_fork_that_people_have_signed_can_still_be_started(
    people: cast.People, browse: Browse
) -> None:
    run = paid("signed_not_started", people)
    fork = runs.fork(f"{run.key}:at-2", start=False, by=people.starter)
    client = browse(people.starter)
    assert "Start it" in words(client.get(f"/runs/{fork.id}/"))
    run_actions.sign_open(fork, people.reviewer, "approve")
    new_run = runs.advance(fork.id)
    assert "Start it" in words(client.get(f"/runs/{new_run.id}/"))
    assert needs_yes_of(new_run) == ["pay"]


def test_who_may_not_steer_gives_no_yes(people: cast.People, browse: Browse) -> None:
    run = paid("no_yes", people)
    fork = runs.advance(runs.fork(f"{run.key}:at-3", by=people.starter).id)
    client = browse(people.auditor)
    text = words(client.get(f"/runs/{fork.id}/"))
    assert "Someone with the right to steer runs can say yes" in text
    assert (
        client.post(f"/runs/{fork.id}/resume/", {"allow-pay": "yes"}).status_code == 403
    )
    assert AuditLine.objects.filter(kind="refused_resume", run=fork.id).exists()
    assert Run.objects.get(id=fork.id).status == Status.PAUSED


def test_the_tape_of_a_run_that_went_back_says_where(people: cast.People) -> None:
    run = rewound(people)
    assert ("back",) in [column.blocks for column in tape_columns(run.tape, run.status)]


def test_a_fork_shows_what_it_inherited_and_says_where_it_came_from(
    people: cast.People, browse: Browse
) -> None:
    run = paid("inherited", people)
    fork = runs.fork(f"{run.key}:at-2", start=False, by=people.starter)
    again = runs.fork(f"{fork.key}:at-0", start=False, by=people.starter)
    client = browse(people.starter)
    html = client.get(f"/runs/{fork.id}/").content.decode()
    assert f"Fork of {run_name(run)} at 2" in words(client.get(f"/runs/{fork.id}/"))
    assert [f'/runs/{run.id}/?at={seq}"' in html for seq in (0, 1, 2)] == [
        True,
        True,
        True,
    ]
    assert html.count('class="col kept"') == 3
    html = client.get(f"/runs/{again.id}/").content.decode()
    assert html.count('class="col kept"') == 4, (
        "of a fork of a fork, what both have inherited"
    )


def test_a_fork_shows_nothing_of_an_origin_that_one_may_not_see(
    people: cast.People, browse: Browse
) -> None:
    run = paid("not_shown", people)
    fork = runs.fork(f"{run.key}:at-2", start=False, by=people.nobody)
    html = browse(people.nobody).get(f"/runs/{fork.id}/").content.decode()
    assert 'class="col kept"' not in html
    assert str(run.id) not in html


def test_a_fork_that_was_made_paused_reads_not_started_on_its_page(
    people: cast.People, browse: Browse
) -> None:
    run = paid("page_unstarted", people)
    fork = runs.fork(f"{run.key}:at-1", start=False, by=people.starter)
    html = browse(people.starter).get(f"/runs/{fork.id}/").content.decode()
    head = html.partition('id="run-head"')[2].partition('class="facts"')[0]
    assert "Not started" in head
    assert "Needs review" not in head
    assert fork.key in head
