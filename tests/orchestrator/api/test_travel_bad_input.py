"""What cannot be asked of a point in time, over the API: a problem by name at each
verb, which changes nothing.
"""

from typing import Any

import pytest

from approvals.models import ApprovalRequest
from checkpoints.models import AuditLine, Run
from checkpoints.queue import leases
from orchestrator import runs
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.paid_claims import claim, rows_of
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

BAD: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "input": (
        {"input": {"folder": "x"}},
        422,
        {"code": "invalid_value", "path": "input"},
    ),
    "diagnostics": (
        {"diagnostics": {}},
        422,
        {"code": "invalid_value", "path": "diagnostics"},
    ),
    "an unknown channel": ({"scratch": {"nobody": 1}}, 422, {"path": "scratch.nobody"}),
    "a wrong type": (
        {"scratch": {"total": "many"}},
        422,
        {"path": "scratch.total", "value": "many"},
    ),
    "5 MB": (
        {"scratch": {"letter": "x" * 5_000_000}},
        413,
        {"code": "payload_too_large"},
    ),
    "a test that fails": (
        {"scratch": [{"op": "test", "path": "/total", "value": 7}]},
        422,
        {"path": "scratch[0]"},
    ),
    "a list": ([1], 400, {"code": "invalid_body"}),
}
ANSWERS = {"ask": {"total": 10}}


@pytest.fixture
def waiting(people: People) -> Run:
    """A claim that waits for its people."""
    return advanced(claim("bad_input"))


def requests_of(run: Run, **options: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each verb that goes back to the first superstep of a run: where it is posted, and
    the body.
    """
    point = f"{run.key}:step-1"
    return {
        "plan": (f"checkpoints/{point}/plan/", options),
        "fork": (f"checkpoints/{point}/fork/", options),
        "rewind": (
            f"runs/{run.id}/rewind/",
            {"checkpoint": point, "reason": "r", **options},
        ),
        "resume": (f"runs/{run.id}/resume/", options),
    }


@pytest.mark.parametrize("name", BAD)
def test_a_bad_patch_is_refused_at_each_verb_and_changes_nothing(
    olive: Client, waiting: Run, name: str
) -> None:
    patch, status, facts = BAD[name]
    before = rows_of(waiting)
    for verb, (path, body) in requests_of(waiting, patch=patch).items():
        answer = olive.post(path, body)
        document = answer.json()
        assert verb == verb, document
        assert answer.status_code == status, document
        assert {key: document.get(key) for key in facts} == facts, document
    assert rows_of(waiting) == before
    assert Run.objects.count() == 1


def test_what_is_no_json_is_refused_at_each_verb(olive: Client, waiting: Run) -> None:
    for verb, (path, _) in requests_of(waiting).items():
        for text in (
            b'{"patch": {',
            b'{"patch": {"scratch": {"total": NaN}}}',
            b"\xff",
        ):
            answer = olive.http.generic(
                "POST", f"/api/v1/{path}", text, content_type="application/json"
            )
            assert verb == verb
            assert answer.status_code == 400
            assert answer.json()["code"] == "parse_error"
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    "checkpoint",
    [
        "bad_input:step-9",
        "01a20447-1f6b-7b29-bc56-1f6ee15fdc98",
        "nonsense",
        "no such run:initial",
    ],
)
def test_a_checkpoint_that_there_is_not_is_404_at_each_verb(
    olive: Client, waiting: Run, checkpoint: str
) -> None:
    for verb in ("plan", "fork", "replay"):
        answer = olive.post(f"checkpoints/{checkpoint.replace(' ', '%20')}/{verb}/", {})
        assert verb == verb
        assert answer.status_code == 404
    answer = olive.post(
        f"runs/{waiting.id}/rewind/", {"checkpoint": checkpoint, "reason": "r"}
    )
    assert answer.status_code == 404
    assert answer.json()["code"] == "unknown_thing"
    bulk = olive.post("forks/", {"checkpoints": [checkpoint]})
    assert bulk.status_code == 404
    assert Run.objects.count() == 1


def test_a_run_that_may_not_be_seen_is_404_everywhere(
    people: People, waiting: Run
) -> None:
    stranger = Client(people.nobody)
    point = f"{waiting.key}:step-1"
    replay = runs.replay(point, by=people.starter)
    posts = [*requests_of(waiting).values(), (f"checkpoints/{point}/replay/", {})]
    assert [stranger.post(path, body).status_code for path, body in posts] == [404] * 5
    read = [
        f"runs/{waiting.id}/lineage/",
        f"runs/{replay.id}/replay-report/",
        f"checkpoints/{point}/",
    ]
    assert [stranger.get(path).status_code for path in read] == [404] * 3
    assert Run.objects.count() == 2


def test_a_run_in_hand_is_not_rewound_nor_resumed_with_a_patch(
    olive: Client, waiting: Run
) -> None:
    runs.rewind(waiting.id, f"{waiting.key}:step-1")
    assert leases.claim_one(waiting.id)
    before = rows_of(waiting)[0]
    posts = requests_of(waiting, patch={"scratch": {"letter": "x"}})
    for verb in ("rewind", "resume"):
        path, body = posts[verb]
        answer = olive.post(path, body)
        assert verb == verb
        assert answer.status_code == 409
        assert answer.json()["code"] == "wrong_status"
        assert "in hand" in answer.json()["detail"]
    assert rows_of(waiting)[0] == before


def test_a_replay_is_not_made_live(olive: Client, people: People, waiting: Run) -> None:
    replay = runs.advance(runs.replay(f"{waiting.key}:initial", by=people.starter).id)
    before = rows_of(replay)
    for verb, more in (
        ("rewind", {}),
        ("resume", {"patch": {"scratch": {"letter": "x"}}}),
        ("resume", {}),
    ):
        path, body = requests_of(replay, **more)[verb]
        body = (
            {**body, "checkpoint": f"{replay.key}:initial"}
            if verb == "rewind"
            else body
        )
        answer = olive.post(path, body)
        assert verb == verb
        assert answer.status_code == 409
        assert answer.json()["code"] == "wrong_status"
    assert rows_of(replay) == before


def test_an_effect_that_there_is_not_or_that_needs_no_yes_is_not_allowed(
    olive: Client, waiting: Run
) -> None:
    for verb, (path, body) in requests_of(waiting, allow_effects=["nobody"]).items():
        answer = olive.post(path, body)
        assert verb == verb
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_value"
    answer = olive.post(f"runs/{waiting.id}/resume/", {"allow_effects": ["pay"]})
    assert answer.status_code == 422
    assert answer.json()["path"] == "allow_effects"
    assert Run.objects.count() == 1


def test_answers_of_somebody_who_may_not_decide_are_refused_with_an_audit_line(
    olive: Client, waiting: Run
) -> None:
    before = rows_of(waiting)
    point = f"{waiting.key}:step-2"
    posts = [
        (f"checkpoints/{point}/fork/", {"answers": ANSWERS}),
        (
            f"runs/{waiting.id}/rewind/",
            {"checkpoint": point, "reason": "r", "answers": ANSWERS},
        ),
    ]
    for path, body in posts:
        answer = olive.post(path, body)
        assert answer.status_code == 403
        assert answer.json()["code"] == "not_a_reviewer"
    assert rows_of(waiting) == before
    assert Run.objects.count() == 1
    assert AuditLine.objects.filter(kind="refused_not_a_reviewer").count() == 2
    assert ApprovalRequest.objects.get(run=waiting.id).status == "open"
