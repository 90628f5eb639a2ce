"""Graphs and workers are shown to people with a role; to everybody else they are not
there, in menus neither.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints.models import Run
from checkpoints.queue import jobs
from orchestrator.views import graphs
from tests.support import claims
from tests.support.cast import People
from tests.support.rows import a_run
from tests.support.small_graphs import Notes, started
from tests.support.versioned_graphs import Copied, Texts, paying

Browse = Callable[[User], Client]
PAGES = ["/graphs/", "/graphs/page_claim/", "/graphs/page_claim/start/", "/workers/"]


@pytest.mark.parametrize("page", PAGES)
def test_who_has_no_role_finds_no_graphs_and_no_workers(
    claim_graph: None, people: People, browse: Browse, page: str
) -> None:
    assert browse(people.nobody).get(page).status_code == 404
    assert browse(people.nobody).post(page, {}).status_code in (404, 405)
    assert all(
        browse(someone).get(page, follow=True).status_code == 200
        for someone in (people.starter, people.reviewer)
    )


def test_a_superuser_and_whoever_holds_one_right_have_a_role(
    claim_graph: None, people: People, browse: Browse
) -> None:
    people.nobody.user_permissions.add(Permission.objects.get(codename="view_worker"))
    assert browse(people.nobody).get("/workers/").status_code == 200
    people.second_reviewer.groups.clear()
    User.objects.filter(pk=people.second_reviewer.pk).update(is_superuser=True)
    assert browse(people.second_reviewer).get("/workers/").status_code == 200


def test_a_card_counts_the_runs_of_the_last_day_that_one_may_see_up_to_a_limit(
    claim_graph: None,
    people: People,
    browse: Browse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = timezone.now()
    for hours in (1, 2, 23):
        moment = now - timedelta(hours=hours)
        a_run(graph="page_claim", status="failed", created_at=moment)
    own = a_run(graph="page_claim", status="completed", created_at=now)
    Run.objects.filter(id=own.id).update(started_by=people.nobody)
    a_run(graph="page_claim", status="failed", created_at=now - timedelta(hours=25))
    people.nobody.user_permissions.add(Permission.objects.get(codename="view_worker"))

    assert _runs_on_card(browse(people.auditor)) == {"failed": 3, "completed": 1}
    assert _runs_on_card(browse(people.nobody)) == {"completed": 1}
    monkeypatch.setattr(graphs, "MOST_OF_DAY", 2)
    assert _runs_on_card(browse(people.auditor)) == {"failed": 1, "completed": 1}
    page = browse(people.auditor).get("/graphs/").content.decode()
    assert "of the newest 2 runs" in page


def _runs_on_card(client: Client) -> dict[str, int]:
    cards = client.get("/graphs/").context["graphs"]
    [card] = [card for card in cards if card["name"] == "page_claim"]
    return {label.lower(): count for label, count in card["runs"]}


def test_the_menus_of_who_has_no_role_name_neither_graphs_nor_workers(
    run: Run, people: People, browse: Browse
) -> None:
    links = [f'href="{reverse(name)}"' for name in ("graphs", "workers")]
    page = browse(people.nobody).get("/runs/").content.decode()
    assert not [link for link in [*links, "page_claim"] if link in page]
    page = browse(people.starter).get("/runs/").content.decode()
    assert all(link in page for link in [*links, "page_claim"])


def test_who_lost_his_role_still_sees_the_run_that_he_started_and_no_link_to_its_graph(
    run: Run, people: People, browse: Browse
) -> None:
    link = f'href="{reverse("graph", args=["page_claim"])}"'
    address = reverse("run", args=[run.id])
    assert link in browse(people.starter).get(address).content.decode()
    people.starter.groups.clear()
    page = browse(people.starter).get(address)
    assert page.status_code == 200
    assert link not in page.content.decode()
    assert (
        "<option>page_claim</option>"
        in browse(people.starter).get("/runs/").content.decode()
    )


def test_a_graph_is_described_by_its_author_and_not_by_the_docstring_of_its_state(
    people: People, browse: Browse
) -> None:
    flow = claims.graph_of("described")
    flow.description = "Pays small claims.\nIt takes a day."
    with claims.registered(flow):
        page = browse(people.starter).get("/graphs/described/").content.decode()
    assert "Pays small claims." in page
    assert "A claim for tests." not in page
    assert "nobody asked" not in page


def test_the_workers_page_says_of_each_job_the_work_it_does(
    people: People, browse: Browse
) -> None:
    jobs.add_job("sweep_access", name="sweep_access")
    page = browse(people.starter).get("/workers/").content.decode()
    assert "Removes expired tokens, sessions and kept answers of the API" in page


@pytest.mark.django_db(transaction=True)
def test_the_last_version_that_is_listed_is_compared_with_the_one_before_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for version, state in (("1", Notes), ("2", Copied), ("3", Texts)):
        started(paying(version, state))
    every_one = graphs._versions("paying")
    assert [len(entry["harmless"] + entry["breaking"]) > 0 for entry in every_one] == [
        True,
        True,
        False,
    ]
    monkeypatch.setattr(graphs, "VERSIONS", 2)
    assert graphs._versions("paying") == every_one[:2]
