"""What a person has on the screen of a review: noted once, and only what they may decide."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import reviews
from approvals.models import Decision, Sighting
from approvals.people.sightings import note_sightings, seen_row
from approvals.results import figures
from checkpoints.models import PendingWrite, Run
from tests.support import claims, run_actions
from tests.support.cast import People
from tests.support.confirmed_graphs import gated
from tests.support.review_forms import choose, form_of
from tests.support.run_actions import pending, request
from tests.support.small_graphs import advanced
from tests.support.statements import counted

Browse = Callable[[User], Client]


def name_of(row: PendingWrite, *, revision: int | None = None) -> str:
    return f"{row.write}.{revision or row.revision}"


def tell(client: Client, run: Run, **posted: Any) -> Any:
    answer = client.post(reverse("seen", args=[run.id]), posted)
    assert answer.status_code == 204
    return answer


def test_a_page_that_is_only_opened_notes_nothing(
    run: Run, people: People, browse: Browse
) -> None:
    assert browse(people.reviewer).get(f"/reviews/{run.id}/").status_code == 200
    assert not Sighting.objects.exists()


def test_what_was_on_the_screen_is_noted_once_with_its_revision(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    rows = pending(run)
    before = timezone.now()
    tell(client, run, seen=[name_of(row) for row in rows])
    first = Sighting.objects.get(write=rows[0].write)
    assert (first.run, first.request) == (run.id, request(run).id)
    assert (first.by, first.revision) == (people.reviewer, 1)
    assert abs((first.at - before).total_seconds()) < 30
    assert first.opened_at is None
    tell(client, run, seen=[name_of(rows[0])])
    assert Sighting.objects.count() == len(rows)
    assert Sighting.objects.get(write=rows[0].write).at == first.at


def test_what_was_unfolded_is_noted_when_it_is(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    first, second, *_ = pending(run)
    tell(client, run, seen=[name_of(first)])
    tell(client, run, opened=[name_of(first), name_of(second)])
    seen, opened = Sighting.objects.order_by("id")
    assert seen.at < seen.opened_at
    assert opened.opened_at is not None
    tell(client, run, seen=[name_of(first)], opened=[name_of(second)])
    assert Sighting.objects.get(id=seen.id).opened_at == seen.opened_at


def test_each_person_has_sightings_of_their_own(
    run: Run, people: People, browse: Browse
) -> None:
    row = pending(run)[0]
    for person in (people.reviewer, people.second_reviewer):
        tell(browse(person), run, seen=[name_of(row)])
    assert Sighting.objects.count() == 2


def test_what_is_not_known_or_not_theirs_to_decide_is_ignored(
    run: Run, people: People, browse: Browse
) -> None:
    other = claims.paused("CLM-2", people.starter)
    row = pending(run)[0]
    wrong = [
        name_of(row, revision=2),
        name_of(pending(other)[0]),
        f"{uuid4()}.1",
        f"{row.write}.one",
        "nothing",
        "",
    ]
    tell(browse(people.reviewer), run, seen=wrong, opened=wrong)
    # The starter sees the run, and is none of its reviewers.
    tell(browse(people.starter), run, seen=[name_of(row)])
    assert not Sighting.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_who_looks_while_another_has_taken_it_has_looked(
    rita: User, people: People, browse: Browse
) -> None:
    ravi = run_actions.reviewer(people.second_reviewer)
    run = advanced(gated(exclusive=True, considered=timedelta(seconds=10)))
    reviews.claim(request(run).id, by=ravi)
    tell(browse(rita), run, seen=[name_of(row) for row in pending(run)])
    assert Sighting.objects.filter(by=rita).count() == 1


def test_a_write_that_is_settled_is_not_noted(
    run: Run, people: People, browse: Browse
) -> None:
    rows = pending(run)
    item = {"write": str(rows[0].write), "hash": rows[0].hash, "verdict": "approve"}
    reviews.sign(run.id, [item], by=people.reviewer)
    tell(browse(people.second_reviewer), run, seen=[name_of(row) for row in rows])
    noted = set(Sighting.objects.values_list("write", flat=True))
    assert noted == {row.write for row in rows[1:]}


def test_what_one_may_not_see_is_not_there(
    run: Run, people: People, browse: Browse
) -> None:
    answer = browse(people.nobody).post(reverse("seen", args=[run.id]))
    assert answer.status_code == 404
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(people.reviewer)
    assert strict.post(reverse("seen", args=[run.id])).status_code == 403
    away = Client().post(reverse("seen", args=[run.id]), headers={"X-Fragment": "1"})
    assert away.status_code == 401


def test_what_was_said_before_is_not_looked_up_again(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    names = [name_of(row) for row in pending(run)]
    with counted() as first:
        tell(client, run, seen=names)
    with counted() as again:
        tell(client, run, seen=names)
    inserts = [one for one in first if one.startswith("INSERT")]
    assert len(inserts) == 1
    assert not [one for one in again if one.startswith(("INSERT", "UPDATE"))]
    assert not [one for one in again if "pendingwrite" in one]


def test_without_scripts_the_post_that_signs_is_the_first_sighting(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    page = client.get(reverse("review", args=[run.id]))
    form = choose(page, payout="approve")
    assert client.post(reverse("sign", args=[run.id]), form).status_code == 302
    # All of them stood on the page.
    assert Sighting.objects.count() == len(pending(run))
    # It says nothing of how soon they signed.
    decision = Decision.objects.get()
    assert Sighting.objects.get(write=decision.write).at > decision.at
    assert figures.figures(run.graph)[0].quick is None


@pytest.mark.django_db(transaction=True)
def test_signatures_and_sightings_are_by_one_clock(
    rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the clock of its database is that of the host")
    run = advanced(gated())
    ahead = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    (row,) = pending(run)
    note_sightings(rita, [seen_row(request(run), row, opened=False)])
    item = {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
    reviews.sign(run.id, [item], by=rita)
    elapsed = Decision.objects.get().at - Sighting.objects.get().at
    assert timedelta(0) < elapsed < timedelta(minutes=1)


def test_what_was_revised_meanwhile_was_not_on_the_page_that_signs(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    form = form_of(client.get(reverse("review", args=[run.id])))
    row = next(row for row in pending(run) if row.channel == "letter")
    item = {"write": str(row.write), "hash": row.hash, "verdict": "edit", "value": "x"}
    reviews.sign(run.id, [item], by=people.second_reviewer)
    client.post(reverse("sign", args=[run.id]), form)
    assert not Sighting.objects.filter(by=people.reviewer, write=row.write).exists()


@pytest.fixture
def rita(people: People) -> User:
    return run_actions.reviewer(people.reviewer)


def age(seconds: int) -> None:
    """Let so many seconds pass for what was seen."""
    Sighting.objects.update(at=F("at") - timedelta(seconds=seconds))


@pytest.mark.django_db(transaction=True)
def test_a_page_that_signs_too_soon_keeps_every_choice_and_signs_later(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(considered=timedelta(seconds=10)))
    client = browse(rita)
    page = client.get(reverse("review", args=[run.id]))
    assert "Look at each write for 10 seconds" in page.content.decode()
    form = choose(page, payout="approve")
    early = client.post(reverse("sign", args=[run.id]), form)
    assert early.status_code == 409
    assert early.headers["X-Unconsidered"] == "10"
    html = early.content.decode()
    assert "Nothing was signed yet: its gate asks you to look at each write" in html
    assert "there are 10 seconds left. Everything you chose is kept." in html
    assert " checked" in html
    assert not Decision.objects.exists()
    age(11)
    # The same form, with the same key.
    assert client.post(reverse("sign", args=[run.id]), form).status_code == 302
    assert Decision.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_without_scripts_all_of_a_review_is_unfolded_by_a_link(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(considered="opened"))
    client = browse(rita)
    address = reverse("review", args=[run.id])
    page = client.get(address)
    assert "?unfolded=1" in page.content.decode()
    folded = client.post(reverse("sign", args=[run.id]), choose(page, payout="approve"))
    assert folded.status_code == 409
    assert "open all of a request" in folded.content.decode()
    page = client.get(f"{address}?unfolded=1")
    html = page.content.decode()
    assert html.count('class="fold"') == html.count(" open>") > 0
    form = choose(page, payout="approve")
    write = str(pending(run)[0].write)
    assert f'name="opened" value="{write}"' in " ".join(html.split())
    answer = client.post(reverse("sign", args=[run.id]), {**form, "opened": [write]})
    assert answer.status_code == 302


@pytest.mark.django_db(transaction=True)
def test_a_group_is_looked_at_by_its_samples(rita: User, browse: Browse) -> None:
    run = advanced(gated(considered=timedelta(seconds=10), many=30))
    client = browse(rita)
    address = reverse("review", args=[run.id])
    (group,) = client.get(address).context["page"].groups
    samples = sorted(group.sample_writes)
    page = client.get(address, {"open": samples}).context["page"]
    form = {
        "key": page.key,
        "number": str(page.number),
        "write": samples,
        "group": group.id,
        f"gs-{group.id}": group.seal,
        f"g-{group.id}": "approve",
    }
    for slip in page.slips:
        form |= {f"h-{slip.write}": slip.hash, f"o-{slip.write}": slip.opened_token}
    early = client.post(reverse("sign", args=[run.id]), form)
    assert early.status_code == 409
    assert early.headers["X-Unconsidered"] == "10"
    assert Sighting.objects.count() == 30
    age(11)
    assert client.post(reverse("sign", args=[run.id]), form).status_code == 302
    assert Decision.objects.count() == 30
