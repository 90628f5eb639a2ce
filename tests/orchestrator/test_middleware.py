"""An outage is answered 503, with the time to wait and in words; a defect is not."""

import errno
import gzip
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import (
    DataError,
    Error,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
)
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client as Browser
from django.test import RequestFactory
from django.urls import resolve

from checkpoints.models import AuditLine, Run
from orchestrator import middleware
from orchestrator.engine import END, START
from orchestrator.models import IdempotencyRecord
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.payload_backends import Full
from tests.support.small_graphs import graph, registered


def _sqlite(code: int) -> Error:
    error = OperationalError()
    cause = sqlite3.OperationalError()
    cause.sqlite_errorcode = code
    error.__cause__ = cause
    return error


def _postgresql(kind: type[Error], state: str | None) -> Error:
    error = kind()
    cause = (
        psycopg.OperationalError() if state is None else psycopg.errors.lookup(state)()
    )
    error.__cause__ = cause
    return error


OUTAGES: dict[str, Callable[[], Exception]] = {
    "database is locked": lambda: _sqlite(sqlite3.SQLITE_BUSY),
    "database is locked by a snapshot": lambda: _sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT),
    "disk I/O error": lambda: _sqlite(sqlite3.SQLITE_IOERR_FSYNC),
    "database or disk is full": lambda: _sqlite(sqlite3.SQLITE_FULL),
    "server gone": lambda: _postgresql(OperationalError, None),
    "too many connections": lambda: _postgresql(OperationalError, "53300"),
    "disk full": lambda: _postgresql(OperationalError, "53100"),
    "lock timeout": lambda: _postgresql(OperationalError, "55P03"),
    "statement timeout": lambda: _postgresql(OperationalError, "57014"),
    "shutdown": lambda: _postgresql(OperationalError, "57P01"),
    "read only": lambda: _postgresql(InternalError, "25006"),
    "a full disk below uploads": lambda: OSError(
        errno.ENOSPC, "No space left on device"
    ),
}
DEFECTS: dict[str, Callable[[], Exception]] = {
    "no such table": lambda: _sqlite(sqlite3.SQLITE_ERROR),
    "syntax": lambda: _postgresql(ProgrammingError, "42601"),
    "out of range": lambda: _postgresql(DataError, "22003"),
    "aborted": lambda: _postgresql(InternalError, "25P02"),
    "no file": lambda: FileNotFoundError(errno.ENOENT, "No such file"),
}


@contextmanager
def every_statement_raises(make: Callable[[], Exception]) -> Iterator[None]:
    def refuse(*_: Any) -> Any:
        raise make()

    with connection.execute_wrapper(refuse):
        yield


@pytest.fixture
def browser(people: People) -> Browser:
    client = Browser(raise_request_exception=False)
    client.force_login(people.starter)
    return client


@pytest.fixture
def caller(people: People) -> Client:
    client = Client(people.starter)
    client.http.raise_request_exception = False
    return client


def _is_problem(answer: Any) -> None:
    assert answer.status_code == 503, answer.content[:500]
    assert answer["Content-Type"] == "application/problem+json"
    assert int(answer["Retry-After"]) > 0
    facts = answer.json()
    assert facts["status"] == 503
    assert facts["code"] == "unavailable"
    assert "again" in facts["detail"]


def _is_page(answer: Any) -> None:
    text = answer.content.decode()
    assert answer.status_code == 503, text[:500]
    assert answer["Content-Type"].startswith("text/html")
    assert int(answer["Retry-After"]) > 0
    assert "may have been done or not" in text
    assert "wait a moment, look" in text


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_of_the_database_is_a_problem_503_with_the_time_to_wait(
    kind: str, caller: Client
) -> None:
    with every_statement_raises(OUTAGES[kind]):
        _is_problem(caller.get("runs/"))
        _is_problem(caller.post("runs/", {"graph": "gated", "input": {}}))


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_of_the_database_is_a_page_that_needs_no_database(
    kind: str, browser: Browser
) -> None:
    with every_statement_raises(OUTAGES[kind]):
        for path in ("/runs/", "/reviews/", "/admin/"):
            _is_page(browser.get(path))
        _is_page(browser.post("/graphs/gated/start/", {"mode": "json", "json": "{}"}))


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_is_no_outage(kind: str, caller: Client, browser: Browser) -> None:
    with every_statement_raises(DEFECTS[kind]):
        answer = caller.get("runs/")
        assert answer.status_code == 500
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["code"] == "server_error"
        assert answer.json()["status"] == 500
        assert answer.json()["reference"].startswith("err_")
        assert "Nothing was changed" in answer.json()["detail"]
        answer = browser.get("/runs/")
        assert answer.status_code == 500
        assert "Something broke on our side" in answer.content.decode()
        assert "Nothing was changed" in answer.content.decode()


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_while_something_is_sent_does_not_say_that_nothing_was_done(
    kind: str, caller: Client, browser: Browser
) -> None:
    with every_statement_raises(DEFECTS[kind]):
        assert (
            "may have been done or not"
            in caller.post("runs/", {"graph": "gated", "input": {}}).json()["detail"]
        )
        text = browser.post(
            "/graphs/gated/start/", {"mode": "json", "json": "{}"}
        ).content.decode()
    assert "may have been done or not" in text
    assert "Nothing was changed" not in text


def test_an_outage_while_the_session_is_saved_is_the_same_page(
    browser: Browser, people: People
) -> None:
    people.starter.set_password("a long pass phrase")
    people.starter.save()

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if "django_session" in sql and not sql.startswith("SELECT"):
            raise OUTAGES["database is locked"]()
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse):
        _is_page(
            Browser(raise_request_exception=False).post(
                "/login/", _password(people.starter)
            )
        )


def _password(user: User) -> dict[str, str]:
    return {"username": user.get_username(), "password": "a long pass phrase"}


@pytest.mark.django_db(transaction=True)
def test_a_database_that_refuses_in_earnest_is_answered_503_and_nothing_is_changed(
    caller: Client, browser: Browser
) -> None:
    """Not simulated: the database itself is made read-only. The tokens and sessions are
    read all the same.
    """
    _one_node()
    on, off = (
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF")
        if connection.vendor == "sqlite"
        else (
            "SET default_transaction_read_only = on",
            "SET default_transaction_read_only = off",
        )
    )
    body = {"graph": "one", "input": {}, "key": "K"}
    with connection.cursor() as cursor:
        cursor.execute(on)
    try:
        answers = [
            caller.post("runs/", body),
            caller.post("runs/", body, **{"Idempotency-Key": "once"}),
        ]
        page = browser.post(
            "/graphs/one/start/", {"mode": "json", "json": "{}", "key": "K"}
        )
    finally:
        with connection.cursor() as cursor:
            cursor.execute(off)
    for answer in answers:
        _is_problem(answer)
    _is_page(page)
    assert not Run.objects.exists()
    assert not IdempotencyRecord.objects.exists()
    assert not AuditLine.objects.exclude(
        kind__in=["token_made", "account_changed"]
    ).exists()
    assert caller.post("runs/", body, **{"Idempotency-Key": "once"}).status_code == 201


def _one_node(**options: Any) -> None:
    flow = graph("one", **options)
    flow.node("only")(lambda state, ctx: None)
    flow.edge(START, "only")
    flow.edge("only", END)
    registered(flow)


def test_a_place_of_payloads_that_is_full_or_away_is_answered_503(
    cellar: Path, caller: Client, browser: Browser, people: People
) -> None:
    _one_node(payloads="cellar")
    run = caller.post("runs/", {"graph": "one", "input": {}, "key": "there"}).json()
    Full.left = 0
    refused = caller.post("runs/", {"graph": "one", "input": {}, "key": "K"})
    assert refused.status_code == 503
    assert refused.json()["code"] == "save_failed"
    assert int(refused["Retry-After"]) > 0
    _is_page(
        browser.post("/graphs/one/start/", {"mode": "json", "json": "{}", "key": "K"})
    )
    assert [run.key for run in Run.objects.all()] == ["there"]
    Full.away = True
    away = caller.get("checkpoints/there:initial/")
    assert away.status_code == 503
    assert away.json()["code"] == "payloads_unavailable"
    assert int(away["Retry-After"]) > 0
    shown = browser.get(f"/runs/{run['id']}/")
    assert (
        shown.status_code == 200
    )  # the page of a run says at the checkpoint what cannot be read
    assert "the cellar is closed" in shown.content.decode()


@pytest.fixture
def with_page_policy(settings: Any) -> None:
    """Middleware as in a project of somebody else: no policy but ours."""
    others = [
        name for name in settings.MIDDLEWARE if name != "csp.middleware.CSPMiddleware"
    ]
    settings.MIDDLEWARE = ["orchestrator.middleware.PagePolicy", *others]


@pytest.mark.django_db
@pytest.mark.usefixtures("with_page_policy")
@pytest.mark.parametrize(
    "path",
    ["/login/", "/runs/", "/workers/", "/api/v1/graphs/", "/admin/checkpoints/run/"],
)
def test_each_page_of_ours_carries_the_policy_in_a_project_of_somebody_else(
    people: People, path: str
) -> None:
    browser = Browser()
    browser.force_login(people.steward)
    policy = browser.get(path)["Content-Security-Policy"]
    assert set(policy.split("; ")) >= {
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
    }


@pytest.mark.django_db
@pytest.mark.usefixtures("with_page_policy")
@pytest.mark.parametrize("path", ["/admin/login/", "/admin/auth/user/"])
def test_pages_of_others_are_left_alone(people: People, path: str) -> None:
    browser = Browser()
    browser.force_login(people.steward)
    assert "Content-Security-Policy" not in browser.get(path).headers


def test_a_policy_that_a_view_chose_for_itself_stays() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        request.resolver_match = resolve("/login/")
        return HttpResponse(headers={"Content-Security-Policy": "default-src 'self'"})

    response = middleware.PagePolicy(answer)(RequestFactory().get("/login/"))
    assert response["Content-Security-Policy"] == "default-src 'self'"


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/runs/", "/api/v1/graphs/"])
def test_an_answer_is_compressed_where_the_browser_accepts_it(
    people: People, path: str
) -> None:
    browser = Browser()
    browser.force_login(people.steward)
    plain = browser.get(path)
    packed = browser.get(path, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain
    assert packed["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed["Vary"]


@pytest.mark.django_db
def test_the_same_page_is_never_compressed_to_the_same_length_and_token(
    people: People,
) -> None:
    """Else who sees only lengths could guess a form's token letter by letter."""
    browser = Browser()
    browser.force_login(people.steward)
    pages = [
        browser.get("/account/", headers={"Accept-Encoding": "gzip"}).content
        for _ in range(8)
    ]
    tokens = {
        re.search(rb'csrfmiddlewaretoken" value="(\w+)"', gzip.decompress(page))[1]
        for page in pages
    }
    assert len(tokens) == len(pages)
    assert len({len(page) for page in pages}) > 1


@pytest.mark.django_db
def test_what_is_sent_while_it_is_made_is_not_compressed() -> None:
    compression = middleware.Compression(lambda request: HttpResponse())
    request = RequestFactory().get("/", headers={"Accept-Encoding": "gzip"})
    events = StreamingHttpResponse([b"data: 1\n\n" * 100])
    assert compression.process_response(request, events) is events
    assert "Content-Encoding" not in events
