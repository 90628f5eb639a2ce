"""How a call is sent, sent again, and refused."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from checkpoints.models import Run
from orchestrator.client import (
    ApiError,
    AsyncClient,
    Client,
    Conflict,
    Erased,
    ForeignAnswer,
    InvalidBody,
    KeyConflict,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    ServerFailed,
    Throttled,
    Unreachable,
    calls,
    exchange,
)
from tests.support.approvals import BODY

SITE = "https://runs.example.org"
READ = calls.runs_retrieve("CLM-1")
CANCEL = calls.runs_cancel_create("CLM-1", {"reason": "late"})
REMOVE = calls.webhooks_destroy("01a2")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits: how long each pause would have been."""
    taken: list[float] = []
    monkeypatch.setattr("orchestrator.client.connections.time.sleep", taken.append)
    return taken


class Server:
    """Answers a call by the next of its answers; an exception is raised."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **options: Any) -> Client:
        transport = httpx.MockTransport(self)
        return Client(SITE, token="cst_1", transport=transport, **options)

    @property
    def keys(self) -> set[str | None]:
        return {request.headers.get("Idempotency-Key") for request in self.requests}


def problem(status: int, code: str, **options: Any) -> httpx.Response:
    headers = options.pop("headers", None)
    body = {"status": status, "code": code, "detail": f"{code} it is", **options}
    return httpx.Response(status, json=body, headers=headers)


def answer() -> httpx.Response:
    return httpx.Response(200, json={"id": "01a2"})


def test_a_call_says_who_calls_and_accepts_json() -> None:
    server = Server(answer())
    server.client().send(READ)
    [request] = server.requests
    assert str(request.url) == f"{SITE}/api/v1/runs/CLM-1/"
    assert request.headers["Authorization"] == "Token cst_1"
    assert request.headers["Accept"] == "application/json"
    assert "Idempotency-Key" not in request.headers


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
        httpx.RemoteProtocolError("cut"),
        problem(429, "throttled"),
        problem(503, "unavailable"),
        httpx.Response(502, text="<html>Bad gateway</html>"),
        httpx.Response(200, html="<h1>Log in to the Wi-Fi</h1>"),
        problem(409, "in_progress"),
    ],
    ids=repr,
)
def test_what_may_pass_is_sent_again_under_the_same_key(failure: Any) -> None:
    for call in (READ, CANCEL):
        server = Server(failure, failure, answer())
        assert server.client().send(call)["id"] == "01a2"
        assert len(server.requests) == 3
        assert len(server.keys) == 1
        assert len({request.content for request in server.requests}) == 1
    assert None not in server.keys


def test_the_page_of_a_proxy_is_named() -> None:
    server = Server(*[httpx.Response(200, html="<h1>Log in</h1>")] * 2)
    with pytest.raises(ForeignAnswer, match="text/html.*Check the address") as refused:
        server.client(retries=1).send(READ)
    assert (refused.value.status, refused.value.code) == (200, "not_json")


def test_each_call_has_a_key_of_its_own() -> None:
    server = Server(answer(), answer())
    client = server.client()
    client.send(CANCEL)
    client.send(CANCEL)
    assert len(server.keys) == 2


@pytest.mark.parametrize(
    "failure",
    [
        problem(400, "invalid_body"),
        problem(401, "not_authenticated"),
        problem(404, "unknown_thing"),
        problem(409, "wrong_status"),
        problem(500, "server_error"),
    ],
    ids=repr,
)
def test_what_will_not_pass_is_sent_once(failure: httpx.Response) -> None:
    server = Server(failure)
    with pytest.raises(ApiError):
        server.client().send(READ)
    assert len(server.requests) == 1


def test_what_has_its_effect_each_time_is_sent_once() -> None:
    server = Server(httpx.ReadTimeout("late"))
    with pytest.raises(Unreachable):
        server.client().send(REMOVE)
    assert len(server.requests) == 1


def test_it_gives_up_after_so_many_repetitions(pauses: list[float]) -> None:
    server = Server(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(Unreachable, match="ConnectError: refused") as refused:
        server.client(retries=3).send(READ)
    assert isinstance(refused.value.__cause__, httpx.ConnectError)
    assert len(server.requests) == 4
    assert len(pauses) == 3
    for pause, longest in zip(pauses, (0.5, 1.0, 2.0), strict=True):
        assert longest / 2 <= pause <= longest


def test_the_server_says_how_long_to_wait(pauses: list[float]) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    server = Server(
        problem(503, "unavailable", headers={"Retry-After": "7"}),
        problem(429, "throttled", headers={"Retry-After": moment}),
        problem(503, "unavailable", headers={"Retry-After": "tomorrow"}),
        answer(),
    )
    server.client().send(READ)
    assert pauses[0] == 7.0
    assert 10 < pauses[1] <= 20
    assert pauses[2] <= 2.0


def test_nobody_sleeps_for_an_hour_because_a_server_says_so() -> None:
    server = Server(problem(429, "throttled", headers={"Retry-After": "3600"}))
    with pytest.raises(Throttled) as refused:
        server.client().send(READ)
    assert refused.value.retry_after == 3600.0


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_body", InvalidBody),
        (422, "invalid_value", InvalidBody),
        (413, "payload_too_large", InvalidBody),
        (401, "authentication_failed", NotAuthenticated),
        (403, "forbidden", NotAllowed),
        (404, "unknown_thing", NotFound),
        (409, "stale_proposal", Conflict),
        (409, "key_conflict", KeyConflict),
        (422, "idempotency_key_reused", KeyConflict),
        (410, "erased", Erased),
        (429, "throttled", Throttled),
        (500, "server_error", ServerFailed),
        (405, "method_not_allowed", ApiError),
    ],
)
def test_an_error_has_a_type_and_says_what_and_how_to_mend_it(
    status: int, code: str, kind: type[ApiError]
) -> None:
    with pytest.raises(ApiError) as refused:
        Server(problem(status, code, right="start_run")).client(retries=0).send(CANCEL)
    error = refused.value
    assert type(error) is kind
    assert (error.status, error.code, error.message) == (status, code, f"{code} it is")
    assert error.facts == {"right": "start_run"}
    assert str(error).startswith(f"POST runs/CLM-1/cancel/: {code} it is ({status} ")
    assert str(error).endswith(kind.cure)
    assert "cst_1" not in f"{error} {error!r}"


def test_an_answer_of_something_else_is_refused() -> None:
    for other in (
        httpx.Response(302, headers={"Location": "https://elsewhere.example.org/"}),
        httpx.Response(418, json=["a list"]),
    ):
        server = Server(other)
        with pytest.raises(ApiError, match="Check the address"):
            server.client().send(READ)
        assert len(server.requests) == 1


def test_a_name_is_one_part_of_a_path() -> None:
    server = Server(answer())
    server.client().send(calls.runs_retrieve("a/../b?c"))
    assert server.requests[0].url.raw_path == b"/api/v1/runs/a%2F..%2Fb%3Fc/"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="no id or key"):
            calls.runs_retrieve(name)


def test_a_query_has_what_was_named() -> None:
    server = Server(httpx.Response(200, json={"results": [], "next": None}))
    assert list(server.client().rows(calls.audit_list(from_="2026-01-01"))) == []
    assert server.requests[0].url.query == b"from=2026-01-01"


def test_pages_are_followed_at_the_same_address() -> None:
    server = Server(
        httpx.Response(
            200,
            json={
                "results": [1],
                "next": "https://elsewhere.example.org/x/?cursor=a%3D&graph=g",
            },
        ),
        httpx.Response(200, json={"results": [2], "next": None}),
    )
    assert list(server.client().rows(calls.runs_list(graph="g"))) == [1, 2]
    assert str(server.requests[1].url) == f"{SITE}/api/v1/runs/?cursor=a%3D&graph=g"


async def test_the_client_that_awaits_sends_again_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.0)
    server = Server(httpx.ReadError("cut"), answer())
    transport = httpx.MockTransport(server)
    async with AsyncClient(SITE, token="cst_1", transport=transport) as client:
        assert (await client.send(CANCEL))["id"] == "01a2"
    assert len(server.requests) == 2
    assert len(server.keys) == 1


class LosesAnswers(httpx.HTTPTransport):
    """The server does what is asked, and the first answers do not arrive."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if not self.left:
            return response
        self.left -= 1
        response.read()
        response.close()
        raise httpx.ReadError("the connection was cut")


@pytest.fixture
def lossy(
    live_server: Any, asked_of_payers: None, token: str
) -> Iterator[Callable[..., Client]]:
    clients = []

    def make(count: int, **options: Any) -> Client:
        client = Client(
            live_server.url, token=token, transport=LosesAnswers(count), **options
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.mark.django_db(transaction=True)
def test_a_post_whose_answer_was_lost_has_its_effect_once(
    lossy: Callable[..., Client],
) -> None:
    question = {name: its for name, its in BODY.items() if name != "key"}
    approval = lossy(2).ask(**question)
    assert [str(run.id) for run in Run.objects.all()] == [approval.id]


@pytest.mark.django_db(transaction=True)
def test_it_would_ask_twice_without_a_key_of_the_call(
    lossy: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above could not fail."""
    monkeypatch.setattr(exchange, "uuid4", lambda: _Counted())
    question = {name: its for name, its in BODY.items() if name != "key"}
    client = lossy(1, retries=0)
    with pytest.raises(Unreachable):
        client.ask(**question)
    client.ask(**question)
    assert Run.objects.count() == 2


class _Counted:
    """Stands for a key that is another one each time."""

    count = 0

    @property
    def hex(self) -> str:
        _Counted.count += 1
        return f"k{_Counted.count}"


def test_a_body_that_cannot_be_unpacked_is_no_answer() -> None:
    headers = {"Content-Encoding": "gzip"}
    stream = httpx.ByteStream(b"no gzip")
    server = Server(httpx.Response(200, headers=headers, stream=stream), answer())
    assert server.client().send(CANCEL)
    assert len(server.keys) == 1


@pytest.mark.parametrize("garbage", [{}, [], "open", {"id": "01a2", "request": None}])
def test_json_that_is_no_approval_is_refused(garbage: Any) -> None:
    server = Server(httpx.Response(200, json=garbage))
    with pytest.raises(ApiError, match="no approval"):
        server.client().approval("K-1")


def test_listening_ends_though_a_stream_gives_signs_of_life_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(
        "orchestrator.client.connections.time.monotonic", lambda: float(next(now))
    )
    server = Server(httpx.Response(200, stream=_Drips()))
    assert server.client()._connection.carry_out(_listening()) == 0


def test_waiting_survives_a_stream_of_garbage() -> None:
    garbage = httpx.Response(200, text="data: {half\n\n")
    decided = _open_approval(state="cancelled")
    server = Server(_open_approval(), garbage, decided)
    assert server.client().wait("K-1", timeout=20).state == "cancelled"


def _listening() -> exchange.Flow[Any]:
    return (yield exchange.Listen("approvals/01a2/stream/", 0, 14.0))


class _Drips(httpx.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        for _ in range(5000):
            yield b": alive\n\n"


def _open_approval(state: str = "open") -> httpx.Response:
    body = {"id": "01a2", "key": "K-1", "state": state, "title": "", "items": []}
    return httpx.Response(200, json={**body, "request": None})
