"""What is refused is a problem, whoever refuses it."""

import base64
import inspect
import io
from typing import Any

import pytest
from django.test import override_settings

from checkpoints.models import Run
from orchestrator.api import parsing, problems
from orchestrator.engine import errors
from tests.support.api_people import Client

BODY = '{"graph": "gated", "input": {"claim_id": "C"}}'


def raw(
    client: Client, body: bytes | str, content_type: str = "application/json"
) -> Any:
    return client.http.generic("POST", "/api/v1/runs/", body, content_type=content_type)


def test_every_error_class_has_a_status() -> None:
    classes = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.CountersignError)
        and not kind.__name__.startswith("_")
    ]
    assert len(classes) > 15
    unplaced = {
        k.__name__ for k in classes if not {*k.__mro__[:-1]} & set(problems.STATUS)
    }
    assert unplaced == {"CountersignError", "Runaway"}
    assert problems.status_of(errors.Runaway) == 409


def test_a_fact_never_takes_the_place_of_a_member() -> None:
    answer = problems.answer(
        errors.WrongStatus("run x is paused", status="paused", run="x")
    )
    assert answer is not None
    assert answer.data == {
        "type": "urn:countersign:problem:wrong_status",
        "title": "Wrong status",
        "status": 409,
        "code": "wrong_status",
        "detail": "run x is paused",
        "actual_status": "paused",
        "run": "x",
    }


def test_a_defect_is_no_problem() -> None:
    assert problems.answer(ZeroDivisionError()) is None


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[1]",
        b'"x"',
        b"\xff\xfe",
        b'{"graph": NaN}',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        BODY.encode() + b"}",
        b'{"graph": "gated", "input": {"claim_id": "C", "amount": 1e999}}',
    ],
)
def test_malformed_json_is_refused(olive: Client, body: bytes) -> None:
    answer = raw(olive, body)
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] in ("parse_error", "invalid_body")
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("text", "refusal"),
    [("\\ud800", (400, "parse_error")), ("a\\u0000", (422, "invalid_value"))],
)
def test_json_that_has_no_canonical_form_is_refused(
    olive: Client, text: str, refusal: tuple[int, str]
) -> None:
    answer = raw(olive, f'{{"graph": "gated", "input": {{"claim_id": "{text}"}}}}')
    assert (answer.status_code, answer.json()["code"]) == refusal


def test_what_is_deeper_than_the_limit_is_refused(olive: Client) -> None:
    deep = "[" * 150 + "]" * 150
    answer = raw(
        olive,
        f'{{"graph": "gated", "input": {{"claim_id": "C", "evidence": {{"a": {deep}}}}}}}',
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_value"


@override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=2000)
def test_an_oversized_body_is_refused_before_it_is_parsed(olive: Client) -> None:
    answer = raw(olive, b"{" * 2001)
    assert answer.status_code == 413
    assert answer.json()["code"] == "payload_too_large"
    assert answer.json()["most"] == 2000


def test_a_body_in_chunks_is_refused_rather_than_taken_for_an_empty_one() -> None:
    with pytest.raises(parsing.LengthRequired):
        parsing.check_length({"HTTP_TRANSFER_ENCODING": "chunked"}, most=10)
    parsing.check_length({}, most=10)
    parsing.check_length({"CONTENT_LENGTH": "10"}, most=10)


@override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=2000)
def test_a_body_that_lies_about_its_length_is_read_no_further_than_the_limit() -> None:
    stream = io.BytesIO(b" " * 1_000_000)
    with pytest.raises(errors.PayloadTooLarge):
        parsing.JSONObjects().parse(stream)
    assert stream.tell() == 2001


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "nonsense/", 404, "not_found"),
        ("GET", "runs/CLM-1/streams/", 404, "not_found"),
        ("POST", "runs/CLM-1/nowhere/", 404, "not_found"),
        ("POST", "requests/", 405, "method_not_allowed"),
        ("DELETE", "runs/CLM-1/", 405, "method_not_allowed"),
        ("GET", "runs/?cursor=rubbish", 404, "not_found"),
    ],
)
def test_the_framework_s_own_refusals_are_problems_too(
    olive: Client, method: str, path: str, status: int, code: str
) -> None:
    answer = olive.http.generic(method, f"/api/v1/{path}")
    assert answer.status_code == status
    assert answer.json()["code"] == code
    assert answer.json()["status"] == status
    assert answer["Content-Type"] == "application/problem+json"


def test_another_media_type_is_refused(olive: Client) -> None:
    assert (
        raw(olive, "graph=gated", "application/x-www-form-urlencoded").status_code
        == 415
    )
    assert (
        olive.http.get("/api/v1/runs/", headers={"Accept": "text/csv"}).status_code
        == 406
    )


@pytest.mark.parametrize("position", ["p=abc", "p=2020-13-99", "o=-1", "o=x", "p=%00"])
def test_a_made_up_cursor_is_refused(olive: Client, paused: Run, position: str) -> None:
    cursor = base64.b64encode(position.encode()).decode()
    for path in ("runs/", "requests/", "runs/CLM-1/events/", "runs/CLM-1/checkpoints/"):
        assert olive.get(path, cursor=cursor).status_code in (200, 404)


@pytest.mark.parametrize(
    "path",
    [
        "runs/%00/",
        "runs/a%00/events/",
        "checkpoints/%00:initial/",
        "graphs/%00/",
        "runs/?key=%00",
        "runs/%ff/",
    ],
)
def test_an_address_that_no_database_could_hold_is_refused(
    olive: Client, path: str
) -> None:
    assert olive.http.get(f"/api/v1/{path}").status_code in (400, 404)


def test_a_line_number_beyond_every_log_gives_nothing(
    olive: Client, paused: Run
) -> None:
    assert olive.get("runs/CLM-1/events/", after=str(10**30)).json()["results"] == []
    assert olive.get("runs/CLM-1/events/", after="-1").status_code == 400
