"""What `manage.py check --deploy` warns of in a project that serves our pages."""

from typing import Any

import pytest
from django.db import connection, connections

from orchestrator import checks
from tests.house.commands import PRODUCTION, manage


def ids(messages: list[Any]) -> list[str]:
    return [message.id for message in messages]


def test_a_project_whose_pages_have_no_policy_is_warned(settings: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
    assert ids(checks.check_page_policy(None)) == ["orchestrator.W003"]


@pytest.mark.parametrize("name", checks.PAGE_POLICIES)
def test_a_policy_from_whichever_middleware_will_do(settings: Any, name: str) -> None:
    settings.MIDDLEWARE = [name]
    assert checks.check_page_policy(None) == []


def test_a_proxy_whose_client_header_is_not_named_is_warned_of(settings: Any) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    (warning,) = checks.check_client_address(None)
    assert warning.id == "orchestrator.W004"
    assert "lock" in warning.msg
    assert "CLIENT_ADDRESS_HEADER" in warning.hint


def test_a_proxy_whose_client_header_is_named_is_not(
    settings: Any, configure: Any
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    configure(CLIENT_ADDRESS_HEADER="X-Real-IP")
    assert checks.check_client_address(None) == []


def test_without_a_proxy_no_header_is_needed() -> None:
    assert checks.check_client_address(None) == []


def test_web_processes_that_would_keep_their_connections_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)
    monkeypatch.setattr(type(connections["default"]), "vendor", "postgresql")
    assert ids(checks.check_web_connections(None)) == ["orchestrator.W005"]


def test_web_processes_that_close_their_connections_are_not() -> None:
    assert checks.check_web_connections(None) == []


REDIS = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": "redis://localhost",
    }
}


@pytest.mark.parametrize("engine", checks.SESSIONS_THAT_NEED_A_CACHE)
def test_sessions_that_need_a_cache_server_are_warned_of_with_the_cure(
    settings: Any, engine: str
) -> None:
    settings.SESSION_ENGINE = engine
    settings.CACHES = REDIS
    (warning,) = checks.check_session_cache(None)
    assert warning.id == "orchestrator.W006"
    assert engine in warning.msg
    assert 'SESSION_ENGINE = "orchestrator.sessions"' in warning.hint


def test_sessions_that_do_without_their_cache_are_not(settings: Any) -> None:
    settings.CACHES = REDIS
    settings.SESSION_ENGINE = "orchestrator.sessions"
    assert checks.check_session_cache(None) == []


def test_a_cache_without_a_server_cannot_be_down(settings: Any) -> None:
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.cached_db"
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    }
    assert checks.check_session_cache(None) == []


def test_the_warnings_are_those_of_a_deployment_alone(tmp_path: Any) -> None:
    behind_proxy = {
        **PRODUCTION,
        "COUNTERSIGN_DATA_DIR": tmp_path,
        "COUNTERSIGN_BEHIND_PROXY": "true",
    }
    assert "orchestrator.W004" in manage("check", "--deploy", **behind_proxy).stderr
    assert "orchestrator.W004" not in manage("check", **behind_proxy).stderr
