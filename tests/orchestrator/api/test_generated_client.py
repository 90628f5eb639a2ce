"""A client that a generator makes of the schema drives the API over HTTP, and its
models take what is answered.
"""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from orchestrator import runs, tokens
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = """
post_hooks: []
content_type_overrides:
  application/x-ndjson: application/octet-stream
"""
"""Nothing is formatted, which takes longest; a bundle is bytes to the generator, which
knows no lines of JSON.
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the package that the generator made; every endpoint and each of its
    answers is in it.
    """
    folder = tmp_path_factory.mktemp("generated")
    schema = folder / "schema.json"
    config = folder / "config.yml"
    package = folder / "countersign_client"
    schema.write_bytes(
        OpenApiJsonRenderer().render(SchemaGenerator().get_schema(public=True))
    )
    config.write_text(CONFIG)
    generate = [
        Path(sys.executable).with_name("openapi-python-client"),
        "generate",
        "--meta",
        "none",
    ]
    files = ["--path", schema, "--config", config, "--output-path", package]
    process = subprocess.run(
        [*generate, *files, "--fail-on-warning"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        yield package.name


class Api:
    """One person at the API, by the client that was generated."""

    def __init__(self, package: str, url: str, user: Any) -> None:
        self.package, token = package, tokens.make_token(user, scopes=tokens.SCOPES)
        client = import_module(f"{package}.client").AuthenticatedClient
        self.client = client(
            url, token, prefix="Token", raise_on_unexpected_status=True
        )

    def call(self, operation: str, *args: Any, **options: Any) -> Any:
        """The answer of an operation, as the model that the client has for it."""
        return import_module(f"{self.package}.api.{operation}").sync(
            *args, client=self.client, **options
        )

    def model(self, name: str) -> Any:
        return getattr(import_module(f"{self.package}.models"), name)


@pytest.fixture
def olive(generated: str, live_server: Any, people: People) -> Api:
    return Api(generated, live_server.url, people.starter)


@pytest.fixture
def rita(generated: str, live_server: Any, people: People) -> Api:
    return Api(generated, live_server.url, people.reviewer)


def started(olive: Api, key: str) -> Any:
    body = {"graph": "gated", "input": {"claim_id": key, "amount": 40}, "key": key}
    return olive.call(
        "runs.runs_create",
        body=olive.model("StartBody").from_dict(body),
        idempotency_key=key,
    )


def test_a_generated_client_starts_lists_by_pages_gets_decides_and_reads_refusals(
    olive: Api, rita: Api
) -> None:
    first = started(olive, "CLM-1")
    assert isinstance(first, olive.model("RunOut"))
    assert first.key == "CLM-1"
    assert first.status == "queued"
    assert started(olive, "CLM-1").id == first.id
    made = [first, started(olive, "CLM-2"), started(olive, "CLM-3")]

    page = olive.call("runs.runs_list", page_size=2, graph="gated")
    (cursor,) = parse_qs(urlsplit(page.next_).query)["cursor"]
    rest = olive.call("runs.runs_list", page_size=2, graph="gated", cursor=cursor)
    assert [run.id for run in (*page.results, *rest.results)] == [
        run.id for run in reversed(made)
    ]

    runs.advance(str(first.id))
    shown = olive.call("runs.runs_retrieve", str(first.id))
    assert shown.status == "paused"
    assert shown.input_.to_dict()["claim_id"] == "CLM-1"

    (waiting_request,) = rita.call(
        "requests.requests_list", waiting=rita.model("RequestsListWaiting")("me")
    ).results
    request = rita.call("requests.requests_retrieve", waiting_request.id)
    assert request.may_decide.yes
    approve = rita.model("DecisionBodyVerdictEnum").APPROVE
    decision = rita.model("DecisionBody")
    decisions = [
        decision(write=write.id, hash_=write.hash_, verdict=approve)
        for write in request.writes
    ]
    body = rita.model("DecisionsBody")(decisions=decisions)
    receipt = rita.call(
        "requests.requests_decisions_create", waiting_request.id, body=body
    )
    assert {line.result.value for line in receipt.lines} == {"counted"}
    assert runs.advance(str(first.id)).status == "completed"

    problem = olive.model("ProblemOut")
    again = rita.call(
        "requests.requests_decisions_create", waiting_request.id, body=body
    )
    unknown = olive.call("runs.runs_retrieve", "nothing")
    refused = rita.call(
        "runs.runs_create",
        body=rita.model("StartBody").from_dict({"graph": "gated", "input": {}}),
    )
    assert [type(one) for one in (again, unknown, refused)] == [problem] * 3
    assert [(one.status, one.code) for one in (unknown, refused)] == [
        (404, "unknown_thing"),
        (403, "forbidden"),
    ]
    assert refused.additional_properties == {"right": "start_run"}
    assert again.status == 409
    assert again.code == "wrong_status"
