"""Sessions do without their cache while it is away, and do not believe it for long."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache.backends.locmem import LocMemCache
from django.test import Client

from orchestrator import sessions
from orchestrator.checks import SESSIONS_THAT_NEED_A_CACHE
from orchestrator.sessions import COPY_SECONDS, SessionStore

pytestmark = pytest.mark.django_db


class Faulty(LocMemCache):
    """A cache that can be taken away."""

    away = False
    calls = 0
    timeouts: list[Any] = []

    def _answer(self) -> None:
        Faulty.calls += 1
        if Faulty.away:
            raise ConnectionError("no cache here")

    def get(self, *args: Any, **kwargs: Any) -> Any:
        self._answer()
        return super().get(*args, **kwargs)

    def set(
        self, key: Any, value: Any, timeout: Any = None, version: Any = None
    ) -> None:
        self._answer()
        Faulty.timeouts.append(timeout)
        super().set(key, value, timeout, version)

    def delete(self, *args: Any, **kwargs: Any) -> bool:
        self._answer()
        return bool(super().delete(*args, **kwargs))

    def has_key(self, *args: Any, **kwargs: Any) -> bool:
        self._answer()
        return bool(super().has_key(*args, **kwargs))


@pytest.fixture(autouse=True)
def cache(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Faulty]]:
    settings.SESSION_ENGINE = "orchestrator.sessions"
    settings.CACHES = {"default": {"BACKEND": f"{Faulty.__module__}.Faulty"}}
    monkeypatch.setattr(sessions._Dispensable, "_rests_until", 0.0)
    Faulty.away = False
    Faulty.calls = 0
    Faulty.timeouts = []
    yield Faulty
    LocMemCache("", {}).clear()


@pytest.fixture
def olive(db: None) -> User:
    return User.objects.create_user("olive", password="right horse")


def sign_in(client: Client) -> int:
    return client.post(
        "/login/", {"username": "olive", "password": "right horse"}
    ).status_code


def test_people_sign_in_and_out_while_the_cache_is_away(
    client: Client, olive: User, cache: type[Faulty]
) -> None:
    cache.away = True
    assert sign_in(client) == 302
    assert client.get("/runs/").status_code == 200
    assert client.post("/logout/").status_code == 302
    assert client.get("/runs/").status_code == 302


@pytest.mark.parametrize("engine", SESSIONS_THAT_NEED_A_CACHE)
def test_with_an_engine_of_django_nobody_signs_in_while_the_cache_is_away(
    client: Client, olive: User, cache: type[Faulty], settings: Any, engine: str
) -> None:
    settings.SESSION_ENGINE = engine
    cache.away = True
    client.raise_request_exception = False
    assert sign_in(client) == 500


@pytest.mark.parametrize(
    "backend",
    ["django.core.cache.backends.redis.RedisCache", "not_installed.RedisCache"],
)
def test_people_sign_in_and_out_without_the_package_of_the_cache(
    client: Client,
    olive: User,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://localhost"}}
    assert sign_in(client) == 302
    assert client.get("/runs/").status_code == 200
    assert client.post("/logout/").status_code == 302


def test_a_cache_that_failed_is_left_alone_for_a_while(
    client: Client, olive: User, cache: type[Faulty]
) -> None:
    cache.away = True
    sign_in(client)
    client.get("/runs/")
    assert cache.calls == 1


def test_a_session_is_read_from_the_cache_while_it_answers(
    client: Client, olive: User, django_assert_num_queries: Any
) -> None:
    sign_in(client)
    key = client.session.session_key
    with django_assert_num_queries(0):
        assert SessionStore(key).load()


def test_a_copy_in_the_cache_is_believed_for_a_minute_at_most(
    client: Client, olive: User, cache: type[Faulty]
) -> None:
    sign_in(client)
    assert cache.timeouts
    assert max(cache.timeouts) == COPY_SECONDS == 60
