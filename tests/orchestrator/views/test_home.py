"""The frame of every page: the door, the way in, the theme, errors, and what the
browser is told to keep.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from checkpoints.models import Run, Worker
from checkpoints.queue import workers
from orchestrator.models import Preference
from orchestrator.views import errors
from tests.support import claims
from tests.support.cast import PASSWORD, People
from tests.support.rows import a_worker

Browse = Callable[[User], Client]


def test_home_leads_to_the_reviews_if_something_waits_else_to_the_runs(
    run: Run, people: People, browse: Browse
) -> None:
    assert browse(people.reviewer).get("/").url == reverse("inbox")
    assert browse(people.starter).get("/").url == reverse("runs")


def test_the_bar_counts_what_waits_for_this_person(
    run: Run, people: People, browse: Browse
) -> None:
    claims.paused("CLM-2", people.starter)
    assert b"data-waiting>2<" in browse(people.reviewer).get(reverse("runs")).content
    assert (
        b"data-waiting hidden>0<" in browse(people.starter).get(reverse("runs")).content
    )


def test_the_demo_leads_from_every_page_to_what_it_did_outside(
    people: People, browse: Browse, configure: Callable[..., None]
) -> None:
    client = browse(people.starter)
    link = f'<a class="env other" href="{reverse("demo_outside")}">Demo</a>'.encode()
    assert link in client.get(reverse("runs")).content
    configure(ENVIRONMENT="Staging")
    assert link not in client.get(reverse("runs")).content


def test_signing_in_leads_on_and_a_wrong_password_says_so(people: People) -> None:
    client = Client()
    name = people.starter.username
    wrong = client.post(
        "/login/?next=/graphs/", {"username": name, "password": "x", "next": "/graphs/"}
    )
    assert b"do not match" in wrong.content
    right = client.post(
        "/login/", {"username": name, "password": PASSWORD, "next": "/graphs/"}
    )
    assert right.url == "/graphs/"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_is_kept_with_the_account_and_painted_at_once(
    theme: str, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    client.post(reverse("theme"), {"theme": theme, "next": "/runs/"})
    assert Preference.objects.get(user=people.starter).theme == theme
    assert f'data-theme="{theme}"' in client.get("/runs/").content.decode()
    elsewhere = Client()
    elsewhere.post(
        "/login/", {"username": people.starter.username, "password": PASSWORD}
    )
    assert f'data-theme="{theme}"' in elsewhere.get("/runs/").content.decode()


@pytest.mark.parametrize("there", ["%", "runs", "a b"])
def test_after_the_theme_one_is_led_to_the_address_that_was_given_and_to_no_page_of_that_name(
    there: str, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(
        reverse("theme"), {"theme": "dark", "next": there}
    )
    assert answer.status_code == 302
    assert answer.url.replace("%20", " ") == there


def test_an_unknown_theme_changes_nothing_and_leads_to_no_other_host(
    people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(
        reverse("theme"), {"theme": "pink", "next": "https://elsewhere.example/"}
    )
    assert answer.url == "/"
    assert not Preference.objects.exists()


def test_whoever_had_to_sign_in_before_he_chose_a_theme_is_led_home(
    people: People, browse: Browse
) -> None:
    answer = browse(people.starter).get(reverse("theme"), {"theme": "dark"})
    assert answer.status_code == 302
    assert answer.url == "/"
    assert not Preference.objects.exists()


def test_what_is_not_there_says_so_in_the_same_look(
    people: People, browse: Browse
) -> None:
    answer = browse(people.starter).get("/nothing/here/")
    assert answer.status_code == 404
    assert b"Not found" in answer.content
    assert b"console.css" in answer.content


def test_the_page_for_our_own_faults_needs_no_database() -> None:
    answer = errors.server_error(RequestFactory().get("/"))
    assert answer.status_code == 500
    assert b"Something broke on our side" in answer.content
    assert b"err_" in answer.content


def test_pages_carry_no_inline_style_or_script(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    for url in (
        "/runs/",
        "/reviews/",
        reverse("run", args=[run.id]),
        reverse("review", args=[run.id]),
        "/graphs/",
    ):
        html = client.get(url).content.decode()
        assert " style=" not in html
        assert "<style" not in html
        assert " onclick=" not in html
        assert "<script>" not in html


def test_a_script_that_asks_for_parts_gets_no_bar(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert b'<header class="bar"' in client.get(url).content
    parts = client.get(url, headers={"X-Fragment": "1"})
    assert b'<header class="bar"' not in parts.content
    assert b'id="run-head"' in parts.content
    assert parts.headers["Cache-Control"] == "private, no-cache"


def test_the_workers_page_says_when_nobody_has_been_heard_from(
    claim_graph: None, people: People, browse: Browse
) -> None:
    from orchestrator import runs

    runs.start("page_claim", {"claim_id": "CLM-1", "amount": "1"}, by=people.starter)
    html = browse(people.starter).get(reverse("workers")).content.decode()
    assert "No worker has been heard from." in html
    assert "Nothing is lost." in html


@pytest.mark.parametrize("page", ["runs", "inbox", "graphs", "workers"])
def test_every_page_says_that_no_worker_is_there_and_since_when(
    page: str, people: People, browse: Browse
) -> None:
    silent = a_worker(heartbeat_at=timezone.now() - timedelta(minutes=1))
    html = browse(people.starter).get(reverse(page)).content.decode()
    strip = html[html.index('id="no-worker"') : html.index("<main")]
    assert " hidden" not in strip.partition(">")[0]
    assert (
        f'since <time datetime="{timezone.localtime(silent.heartbeat_at).isoformat()}"'
        in strip
    )
    a_worker()
    strip = (
        browse(people.starter)
        .get(reverse(page))
        .content.decode()
        .partition('id="no-worker"')[2]
    )
    assert " hidden" in strip.partition(">")[0]


def test_what_to_do_about_workers_is_told_to_who_may_see_them(
    people: People, browse: Browse
) -> None:
    for person, sees_workers in ((people.starter, True), (people.nobody, False)):
        html = browse(person).get(reverse("runs")).content.decode()
        strip = html[html.index('id="no-worker"') : html.index("<main")]
        assert ("manage.py worker" in strip) == sees_workers
        assert (reverse("workers") in strip) == sees_workers


def test_who_is_not_signed_in_is_not_told_of_workers(db: None) -> None:
    assert b"no-worker" not in Client().get(reverse("login")).content


def test_whether_a_worker_is_there_costs_one_query(people: People) -> None:
    a_worker()
    with CaptureQueriesContext(connection) as queries:
        assert workers.silence() is None
    assert len(queries) == 1
    with CaptureQueriesContext(connection) as queries:
        Worker.objects.update(draining=True)
        assert workers.silence() is not None
    # The other one is the change.
    assert len(queries) == 2
