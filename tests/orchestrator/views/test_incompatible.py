"""A run that cannot go on with the version that is here: what breaks it, what does not,
and the ways that exist.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from checkpoints.queue import leases
from orchestrator import discovery, runs
from orchestrator.engine import Graph
from orchestrator.runs import version_choice
from orchestrator.worker import claimable
from tests.support.cast import People
from tests.support.rows import a_worker
from tests.support.small_graphs import Notes, advanced, started
from tests.support.versioned_graphs import Copied, Texts, deployed, in_euros, paying

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[..., Client]


def stopped(people: People, new: Graph) -> Run:
    """A run of version 1 that this version could not take over."""
    run = started(paying("1"))
    Run.objects.filter(id=run.id).update(started_by=None)
    deployed(new)
    run = runs.advance(run.id)
    assert run.status == "incompatible"
    return run


def panel(client: Client, run: Run) -> str:
    html = client.get(reverse("run", args=[run.id])).content.decode()
    match = re.search(r'<section class="panel problem".*?</section>', html, re.DOTALL)
    assert match is not None
    return match[0]


def part(html: str, name: str) -> str:
    match = re.search(rf'data-test="{name}">(.*?)</ul>', html, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", match[1]).split()) if match else ""


class More(Texts):
    """`Texts` with one more channel."""

    more: str = ""


def test_what_breaks_it_and_what_is_harmless_stand_apart(
    people: People, browse: Browse
) -> None:
    run = stopped(people, paying("2", More))
    html = panel(browse(people.steward), run)
    assert part(html, "breaking") == "channel `total`: number became text"
    assert "channel `more`: is new" in part(html, "harmless")
    assert "number became text" not in part(html, "harmless")
    assert "Resume this run" not in html, "no version and no migration is there"
    assert "Finish on" not in html
    assert "Run the migration" not in html
    assert "Deploy the version that it began with" in html


def test_other_content_under_the_same_version_is_told_to_raise_it(
    people: People, browse: Browse
) -> None:
    run = stopped(people, paying("1", Texts))
    html = panel(browse(people.steward), run)
    assert "Raise the version of the graph that is here, for it is called 1 too" in html
    assert "Deploy the version that it began with" not in html
    deployed(paying("2", Texts))
    html = panel(browse(people.steward), run)
    assert "Raise the version" not in html
    assert "Deploy the version that it began with" in html


def test_a_migration_that_is_there_now_is_offered_and_takes_it_on(
    people: People, browse: Browse
) -> None:
    run = stopped(people, paying("2", Texts))
    new = paying("2", Texts)
    new.migration(from_version="1")(in_euros)
    deployed(new)
    client = browse(people.steward)
    assert "Run the migration 1 to 2" in panel(client, run)
    assert client.post(reverse("resume", args=[run.id])).status_code == 302
    assert runs.advance(run.id).status == "paused"
    assert runs.get(run.id).version == "2"


def test_its_own_version_is_offered_where_it_is_registered_or_a_live_worker_has_it(
    people: People, browse: Browse
) -> None:
    run = stopped(people, paying("2", effect="external"))
    client = browse(people.steward)
    assert "Finish on version 1" not in panel(client, run)
    worker = a_worker(fingerprints=[run.fingerprint])
    assert "Finish on version 1" in panel(client, run)
    worker.delete()
    deployed(paying("1"), paying("2", effect="external"))
    assert "Finish on version 1" in panel(client, run)
    client.post(reverse("resume", args=[run.id]))
    assert runs.advance(run.id).status == "paused"
    assert runs.get(run.id).version == "1"


def test_a_fork_is_offered_where_the_version_that_is_here_takes_over_and_leads_to_its_page(
    people: People, browse: Browse
) -> None:
    run = stopped(people, paying("2", effect="external"))
    client = browse(people.steward)
    address = reverse("go_on", args=[run.head])
    assert address in panel(client, run)
    assert client.get(address, follow=True).status_code == 200
    other = stopped(people, paying("3", nodes=("propose", "send")))
    assert reverse("go_on", args=[other.head]) not in panel(client, other), (
        "the node that it stands before is gone"
    )


class Numbered(Notes):
    """`Notes` whose letter became a number."""

    letter: int = 0  # type: ignore[assignment]


def asked_and_stopped(new: Graph, *, migrates: Any = lambda state: None) -> Run:
    """A run of which people are asked about its letter, and that this version could not
    take over.
    """
    run = advanced(paying("1"))
    Run.objects.filter(id=run.id).update(started_by=None, status="queued")
    new.migration(from_version="1")(migrates)
    deployed(new)
    run = runs.advance(run.id)
    assert run.status == "incompatible"
    return run


def test_a_fork_that_would_be_refused_is_not_offered(
    people: People, browse: Browse
) -> None:
    run = asked_and_stopped(
        paying("2", Numbered), migrates=lambda state: state["scratch"].update(letter=1)
    )
    client = browse(people.steward)
    address = reverse("go_on", args=[run.head])
    assert "no migration sees it" in client.get(address, follow=True).content.decode()
    assert address not in panel(client, run)


def test_a_fork_whose_secrets_nobody_has_is_not_offered(
    people: People, browse: Browse
) -> None:
    run = stopped(people, paying("2", effect="external"))
    new = paying("2", effect="external")
    new.secrets = ("bank_token",)
    deployed(new)
    assert reverse("go_on", args=[run.head]) not in panel(browse(people.steward), run)


def test_a_migration_is_tried_for_whoever_can_fork_alone_and_breaks_no_page(
    people: People, browse: Browse
) -> None:
    tried: list[int] = []

    def breaking(state: Any) -> None:
        tried.append(1)
        raise SystemExit("not today")

    run = asked_and_stopped(paying("2", Texts), migrates=breaking)
    tried.clear()
    html = panel(browse(people.auditor), run)
    assert "Somebody with the right to steer runs" in html
    assert tried == []
    html = panel(browse(people.steward), run)
    assert reverse("go_on", args=[run.head]) not in html
    assert bool(tried)


def test_a_record_that_cannot_be_read_offers_no_fork_and_breaks_no_page(
    people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped(people, paying("2", effect="external"))
    monkeypatch.setattr(
        version_choice.travel,
        "plan",
        lambda checkpoint: {}["what an author's type raises"],
    )
    assert reverse("go_on", args=[run.head]) not in panel(browse(people.steward), run)


def test_who_may_not_steer_is_offered_nothing(people: People, browse: Browse) -> None:
    run = stopped(people, paying("2", effect="external"))
    html = panel(browse(people.auditor), run)
    assert "Resume this run" not in html
    assert "go-on" not in html
    assert "Somebody with the right to steer runs" in html


def test_the_workers_page_names_the_runs_that_no_live_worker_can_take(
    people: People, browse: Browse
) -> None:
    deployed(paying("1"))
    deployed(paying("2", Copied))
    run = started(paying("2", Copied))
    old = deployed(paying("1"))
    discovery.note_versions()
    a_worker(fingerprints=[])
    html = browse(people.steward).get(reverse("workers")).content.decode()
    words = " ".join(re.sub(r"<[^>]+>", "", html).split())
    assert (
        f"No live worker can take some of the queued runs. 1 of {old.name} version 2."
        in words
    )
    a_worker(fingerprints=[run.fingerprint])
    assert (
        "No live worker can take"
        not in browse(people.steward).get(reverse("workers")).content.decode()
    )


def test_the_workers_page_names_the_runs_that_nobody_takes_back_to_an_older_version(
    people: People, browse: Browse
) -> None:
    first = paying("1")
    second = paying("2")
    first.current = True
    deployed(first)
    discovery.note_versions()
    deployed(second)
    run = started(second)
    deployed(first, second)
    discovery.forget_noted()
    deployed(first)
    a_worker(fingerprints=claimable.fingerprints())
    assert leases.claim(worker=None, limit=9, only=claimable.claimable()) == []
    html = browse(people.steward).get(reverse("workers")).content.decode()
    words = " ".join(re.sub(r"<[^>]+>", "", html).split())
    assert (
        "No live worker can take some of the queued runs. 1 of paying version 2, newer"
        " than what workers have" in words
    )
    assert "a steward can resume each, which goes on with that if it can" in words
    runs.resume(run.id, by=people.steward)
    assert runs.get(run.id).version == "1"
    assert (
        "No live worker"
        not in browse(people.steward).get(reverse("workers")).content.decode()
    )


def test_the_page_of_a_graph_says_what_changed_from_version_to_version(
    people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    deployed(paying("1"))
    deployed(paying("2", Texts))
    deployed(paying("3", More))
    discovery.note_versions()
    client = browse(people.auditor)
    address = reverse("graph", args=["paying"])
    client.get(address)
    with django_assert_max_num_queries(10):
        html = client.get(address).content.decode()
    assert "Breaks runs that need it:" in html
    assert "channel `total`: number became text" in part(html, "breaking")
    assert "channel `more`: is new, with the default" in html
