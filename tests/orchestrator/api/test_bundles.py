"""Bundles and receipts over the API: who may have them, and what comes in; what is
refused changes nothing.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile

from approvals.exported_receipt import PAYLOAD_TYPE
from approvals.models import Decision
from checkpoints import bundle
from checkpoints.models import AuditLine, Run
from tests.support import cast
from tests.support.api_people import Client
from tests.support.bundles import forgotten, lines_of, signed_run, with_last_line
from tests.support.dsse import opened
from tests.support.forging import tamper
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(tmp_path: Path, people: cast.People) -> Run:
    return signed_run(tmp_path, people)


@pytest.fixture
def ada(people: cast.People) -> Client:
    return Client(people.auditor)


@pytest.fixture
def sam(people: cast.People) -> Client:
    return Client(people.steward)


def _bytes(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


def _sent(client: Client, data: bytes, name: str = "run.jsonl", **headers: str) -> Any:
    form = {"file": SimpleUploadedFile(name, data)}
    return client.http.post(
        "/api/v1/imports/", form, format="multipart", headers=headers
    )


def test_an_auditor_is_given_a_bundle_that_verifies(ada: Client, run: Run) -> None:
    answer = ada.get(f"runs/{run.id}/export/")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/x-ndjson"
    assert answer["Content-Disposition"] == f'attachment; filename="run-{run.id}.jsonl"'
    assert bundle.verify(io.BytesIO(_bytes(answer)), bundle.public_key()).ok


def test_an_export_needs_its_own_right_and_its_own_scope(
    ada: Client, nobody: Client, olive: Client, people: cast.People, run: Run
) -> None:
    assert nobody.get(f"runs/{run.id}/export/").status_code == 404
    assert olive.get(f"runs/{run.id}/export/").status_code == 403
    assert (
        Client(people.auditor, ["read"]).get(f"runs/{run.id}/export/").status_code
        == 403
    )
    assert (
        Client(people.auditor, ["export"]).get(f"runs/{run.id}/export/").status_code
        == 200
    )
    assert AuditLine.objects.filter(kind="run_exported").count() == 1
    assert ada.get("runs/nothing/export/").status_code == 404


def test_a_look_at_the_head_of_an_export_exports_nothing(
    ada: Client, olive: Client, nobody: Client, run: Run
) -> None:
    answer = ada.http.head(f"/api/v1/runs/{run.id}/export/")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/x-ndjson"
    assert answer.content == b""
    assert olive.http.head(f"/api/v1/runs/{run.id}/export/").status_code == 403
    assert nobody.http.head(f"/api/v1/runs/{run.id}/export/").status_code == 404
    assert not AuditLine.objects.filter(kind="run_exported").exists()


def test_a_tampered_run_is_a_conflict_unless_it_is_asked_for_as_it_is(
    ada: Client, run: Run
) -> None:
    tamper(run, label="another")
    answer = ada.get(f"runs/{run.id}/export/")
    assert answer.status_code == 409
    assert answer.json()["code"] == "tampered_row"
    assert (
        lines_of(_bytes(ada.get(f"runs/{run.id}/export/", as_is="true")))[0]["as_is"]
        is True
    )
    assert ada.get(f"runs/{run.id}/export/", as_is="perhaps").status_code == 400


def test_a_steward_takes_a_bundle_in_once(sam: Client, ada: Client, run: Run) -> None:
    data = _bytes(ada.get(f"runs/{run.id}/export/"))
    forgotten(run)
    answer = _sent(sam, data, name="../../etc/passwd")
    assert answer.status_code == 201, answer.content
    imported_run = answer.json()
    assert imported_run["id"] == str(run.id)
    assert imported_run["imported"] is True
    assert imported_run["imported_from"]["by"] == "stella"
    assert imported_run["imported_from"]["fault"] is None
    assert _sent(sam, data).status_code == 200
    assert (
        sam.post(f"runs/{run.id}/cancel/", {"reason": "x"}).json()["code"]
        == "wrong_status"
    )


def test_who_may_not_import_changes_nothing(
    ada: Client, olive: Client, people: cast.People, run: Run
) -> None:
    reader = Client(people.steward, ["read"])
    data = _bytes(ada.get(f"runs/{run.id}/export/"))
    before = contents()
    for client in (ada, olive, reader):
        assert _sent(client, data).status_code == 403
    assert contents() == before


def test_bad_bundles_are_refused_with_the_line_and_the_reason(
    sam: Client, ada: Client, run: Run
) -> None:
    data = _bytes(ada.get(f"runs/{run.id}/export/"))
    before = contents()
    assert _sent(sam, data).json()["code"] == "key_conflict"
    forgotten(run)
    gone = contents()
    assert gone != before
    for sent, line in [
        (data[:-3], data.count(b"\n")),
        (data[:300] + b"!" + data[301:], 1),
        (b"", 1),
        (b"\x1f\x8b", 1),
    ]:
        answer = _sent(sam, sent)
        if answer.status_code == 400:
            assert not sent, "an empty file is none"
            continue
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_bundle"
        assert answer.json()["line"] == line
        assert bool(answer.json()["reason"])
    assert _sent(sam, data, **{"Content-Encoding": "gzip"}).status_code == 415
    assert contents() == gone


@pytest.mark.parametrize("text", [b"\\ud800", b"\\u001b[2K\\rok"])
def test_no_text_of_a_bundle_makes_its_refusal_a_defect(
    text: bytes, sam: Client, ada: Client, run: Run
) -> None:
    data = _bytes(ada.get(f"runs/{run.id}/export/"))
    forgotten(run)
    key = bundle.public_key().hex().encode()
    unsigned = with_last_line(
        data, b'{"kind":"signature","key":"' + text + b'","x":{"key":"' + key + b'"}}'
    )
    answer = _sent(sam, unsigned)
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_bundle"
    assert answer.json()["reason"].isprintable()


def test_a_bundle_beyond_the_limit_of_uploads_is_too_large(
    sam: Client, configure: Any
) -> None:
    configure(MAX_UPLOAD_BYTES=1000)
    assert _sent(sam, b"x" * 100_000).status_code == 413


def test_a_form_without_one_file_is_no_import(sam: Client) -> None:
    assert (
        sam.http.post(
            "/api/v1/imports/", {"file": "text"}, format="multipart"
        ).status_code
        == 400
    )
    two = [SimpleUploadedFile("a", b"a"), SimpleUploadedFile("b", b"b")]
    assert (
        sam.http.post("/api/v1/imports/", {"file": two}, format="multipart").status_code
        == 400
    )
    assert sam.post("imports/", {"file": "x"}).status_code == 415


def test_a_receipt_leaves_for_who_signed_and_for_auditors(
    ada: Client, rita: Client, nobody: Client, olive: Client, run: Run
) -> None:
    decision = Decision.objects.get(run=run.id, verdict="edit")
    for client in (ada, rita):
        answer = client.get(f"decisions/{decision.id}/receipt/")
        assert answer.status_code == 200
        document = opened(answer.content, PAYLOAD_TYPE, bundle.public_key())
        assert document["decision"]["id"] == str(decision.id)
    for client in (nobody, olive):
        assert client.get(f"decisions/{decision.id}/receipt/").status_code == 404
    assert nobody.get(f"decisions/{run.id}/receipt/").status_code == 404


def test_a_look_at_the_head_of_a_receipt_exports_nothing(
    ada: Client, nobody: Client, olive: Client, run: Run
) -> None:
    decision = Decision.objects.filter(run=run.id)[0]
    address = f"/api/v1/decisions/{decision.id}/receipt/"
    answer = ada.http.head(address)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/json"
    assert answer.content == b""
    for client in (nobody, olive):
        assert client.http.head(address).status_code == 404
    assert not AuditLine.objects.filter(kind="receipt_exported").exists()
    ada.http.get(address)
    assert AuditLine.objects.filter(kind="receipt_exported").count() == 1


def test_the_right_to_import_can_be_given_to_anybody(
    ada: Client, run: Run, people: cast.People
) -> None:
    data = _bytes(ada.get(f"runs/{run.id}/export/"))
    forgotten(run)
    people.nobody.user_permissions.add(Permission.objects.get(codename="import_run"))
    assert _sent(Client(User.objects.get(pk=people.nobody.pk)), data).status_code == 201
    assert json.loads(data.splitlines()[0])["body"]["run"] == str(run.id)
