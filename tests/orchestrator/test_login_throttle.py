"""Log-ins that fail too often are refused for a while, whatever the password.
Administrators unlock; all is noted.
"""

import re
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client, override_settings
from django.urls import reverse
from django.utils import timezone

from checkpoints.models import AuditLine
from orchestrator.login_throttle import WIDER
from tests.support.cast import PASSWORD, People, UserFactory

pytestmark = pytest.mark.django_db

LIMIT = 5
HERE = "203.0.113.9"
ELSEWHERE = "198.51.100.1"


def log_in(
    name: str,
    password: str = "wrong",
    *,
    at: str = HERE,
    path: str = "/login/",
    **headers: str,
) -> Any:
    posted = {"username": name, "password": password, "next": "/graphs/"}
    return Client().post(path, posted, REMOTE_ADDR=at, headers=headers)


def gets_in(name: str, *, at: str = HERE, path: str = "/login/") -> bool:
    return log_in(name, PASSWORD, at=at, path=path).status_code == 302


def fail(name: str, times: int, *, at: str = HERE) -> None:
    for n in range(times):
        log_in(name, at=at, **{"User-Agent": f"browser {n}"})


@pytest.fixture
def olive(people: People) -> str:
    return people.starter.username


def test_before_the_limit_a_wrong_password_costs_nothing(olive: str) -> None:
    fail(olive, LIMIT - 1)
    assert gets_in(olive)


def test_after_the_limit_the_right_password_is_refused_too(olive: str) -> None:
    fail(olive, LIMIT)
    answer = log_in(olive, PASSWORD)
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "900"
    sentence = b"Too many sign-ins failed. Try again in 15 min"
    assert sentence in b" ".join(answer.content.split())
    assert answer.context["username"] == answer.wsgi_request.POST["username"]
    assert b'value="/graphs/"' in answer.content
    assert "_auth_user_id" not in answer.client.session


def test_the_page_of_the_administration_has_the_same_throttle(olive: str) -> None:
    User.objects.filter(username=olive).update(is_staff=True)
    assert gets_in(olive, path="/admin/login/")
    for _ in range(LIMIT):
        log_in(olive, path="/admin/login/")
    assert not gets_in(olive, path="/admin/login/")
    assert not gets_in(olive)


def test_it_is_this_name_at_this_address_that_is_refused(
    olive: str, people: People
) -> None:
    fail(olive, LIMIT)
    assert gets_in(people.auditor.username)
    assert gets_in(olive, at=ELSEWHERE)


@override_settings(AXES_FAILURE_LIMIT=2)
def test_a_name_that_fails_at_many_addresses_is_refused_at_all(olive: str) -> None:
    for n in range(2 * WIDER - 1):
        fail(olive, 1, at=f"192.0.2.{n}")
    assert gets_in(olive, at=ELSEWHERE)
    fail(olive, 1, at="192.0.2.99")
    assert not gets_in(olive, at=ELSEWHERE)


@override_settings(AXES_FAILURE_LIMIT=2)
def test_an_address_that_fails_with_many_names_is_refused_with_all(olive: str) -> None:
    for n in range(2 * WIDER - 1):
        fail(f"somebody{n}", 1)
    assert gets_in(olive)
    fail("yet another", 1)
    assert not gets_in(olive)
    assert gets_in(olive, at=ELSEWHERE)


@override_settings(
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"), AXES_FAILURE_LIMIT=2
)
def test_where_nobody_has_an_address_names_alone_are_counted(
    olive: str, people: People
) -> None:
    for n in range(2 * WIDER + 1):
        fail(f"somebody{n}", 1)
    assert gets_in(people.auditor.username)
    fail(olive, 2)
    assert not gets_in(olive)


def test_a_header_that_nobody_named_gives_no_new_address(olive: str) -> None:
    for n in range(LIMIT):
        log_in(olive, **{"X-Forwarded-For": f"192.0.2.{n}"})
    assert not gets_in(olive)


def test_after_the_pause_one_may_try_again_and_what_was_refused_meanwhile_did_not_prolong_it(
    olive: str,
) -> None:
    fail(olive, LIMIT)
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(seconds=895))
    assert not gets_in(olive)
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(seconds=901))
    assert gets_in(olive)


def test_who_gets_in_is_forgiven_his_own_failures_and_no_others(
    olive: str, people: People
) -> None:
    fail(olive, LIMIT - 1)
    assert gets_in(people.auditor.username)
    log_in(olive)
    assert not gets_in(olive)
    fail(people.auditor.username, LIMIT - 1)
    assert gets_in(people.auditor.username)
    fail(people.auditor.username, LIMIT - 1)
    assert gets_in(people.auditor.username)


def test_an_administrator_unlocks(olive: str) -> None:
    fail(olive, LIMIT)
    boss = UserFactory.create(username="boss", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(boss)
    address = reverse("admin:axes_accessattempt_changelist")
    assert olive.encode() in client.get(address).content
    chosen = list(
        AccessAttempt.objects.filter(username=olive).values_list("pk", flat=True)
    )
    client.post(
        address,
        {"action": "delete_selected", "_selected_action": chosen, "post": "yes"},
    )
    assert gets_in(olive)


def test_each_refused_log_in_leaves_an_audit_line_and_the_lock_another(
    olive: str,
) -> None:
    fail(olive, LIMIT)
    lines = list(AuditLine.objects.order_by("id"))
    assert [line.kind for line in lines] == ["refused_login"] * (LIMIT - 1) + [
        "login_locked"
    ]
    assert all(
        line.facts == {"address": HERE, "name": olive} and line.actor is None
        for line in lines
    )


def test_what_is_refused_while_locked_adds_nothing_so_nobody_fills_the_audit_log(
    olive: str,
) -> None:
    fail(olive, LIMIT)
    fail(olive, 5)
    assert AuditLine.objects.count() == LIMIT
    assert AccessAttempt.objects.count() == LIMIT


def test_a_name_that_is_none_is_not_written_into_the_audit_log(people: People) -> None:
    log_in("my-password-by-mistake")
    assert AuditLine.objects.get().facts == {"address": HERE}


def test_nothing_that_was_posted_is_kept_and_no_header_breaks_the_count(
    olive: str,
) -> None:
    for _ in range(2):
        log_in(
            olive,
            "the-password-of-another-place",
            **{"User-Agent": "a\x00b", "Accept": "c\x00d"},
        )
    (kept,) = AccessAttempt.objects.all()
    assert kept.post_data == ""
    assert kept.get_data == ""
    assert kept.failures_since_start == 2
    assert kept.user_agent == "a b"


def test_names_that_exist_and_names_that_do_not_are_answered_alike(olive: str) -> None:
    fail(olive, LIMIT)
    fail("unheard", LIMIT)
    known = log_in(olive)
    unknown = log_in("unheard")
    assert known.status_code == unknown.status_code == 429
    varying = rb'name="csrfmiddlewaretoken" value="\w+"|value="(olive|unheard)"'
    page_of_known, page_of_unknown = (
        re.sub(varying, b"", page.content) for page in (known, unknown)
    )
    assert page_of_known == page_of_unknown


@pytest.mark.django_db(transaction=True)
async def test_the_asynchronous_server_refuses_with_the_same_page(
    transactional_db: None,
) -> None:
    await database_sync_to_async(UserFactory.create)(username="olive")
    client = AsyncClient()
    for _ in range(LIMIT):
        await client.post("/login/", {"username": "olive", "password": "wrong"})
    answer = await client.post("/login/", {"username": "olive", "password": PASSWORD})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "900"
    assert b"Too many sign-ins failed." in answer.content


@override_settings(
    CACHES={"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
)
def test_failures_are_counted_in_the_database_not_in_a_cache_of_one_process(
    olive: str,
) -> None:
    fail(olive, LIMIT)
    assert not gets_in(olive)
