"""Files come in as uploads and go on as references."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import override_settings

from checkpoints import uploads
from checkpoints.models import Run, Upload
from tests.support.api_people import Client
from tests.support.cast import People


@pytest.fixture(autouse=True)
def _storage(tmp_path: Path) -> Iterator[None]:
    with override_settings(MEDIA_ROOT=tmp_path):
        yield


def upload(
    client: Client, data: bytes = b"a,b\n1,2\n", name: str = "rows.csv", **headers: str
) -> Any:
    return client.http.post(
        "/api/v1/uploads/",
        {"file": SimpleUploadedFile(name, data)},
        format="multipart",
        headers=headers,
    )


def started(client: Client, file: dict[str, Any]) -> Any:
    return client.post(
        "runs/", {"graph": "gated", "input": {"claim_id": "C", "evidence": file}}
    )


def test_an_upload_gives_a_reference_that_a_run_can_carry(olive: Client) -> None:
    answer = upload(olive)
    assert answer.status_code == 201
    reference = answer.json()
    assert reference["name"] == "rows.csv"
    assert reference["size"] == 8
    with uploads.open_ref(reference) as file:
        assert file.read() == b"a,b\n1,2\n"
    assert started(olive, reference).json()["input"]["evidence"] == reference


def test_what_is_kept_has_a_name_of_our_own(olive: Client, tmp_path: Path) -> None:
    reference = upload(olive, name="../../etc/passwd").json()
    assert reference["name"] == "passwd"
    assert Upload.objects.get().stored_as == f"uploads/{reference['file']}"
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [reference["file"]]


def test_a_reference_must_agree_with_the_upload(olive: Client) -> None:
    reference = upload(olive).json()
    for change in (
        {"size": 9},
        {"sha256": "0" * 64},
        {"file": "6b1f1f3e-0000-4000-8000-000000000000"},
    ):
        answer = started(olive, {**reference, **change})
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_value"
    assert not Run.objects.exists()


def test_another_person_s_upload_does_not_exist_for_whoever_may_not_see_all_runs(
    people: People, olive: Client
) -> None:
    reference = upload(olive).json()
    uploads.check_refs({"a": [reference]}, by=people.steward)
    uploads.check_refs({"a": [reference]}, by=None)
    with pytest.raises(uploads.InvalidValue, match="no uploaded file"):
        uploads.check_refs({"a": [reference]}, by=people.nobody)


@override_settings(COUNTERSIGN={"MAX_UPLOAD_BYTES": 100})
def test_a_file_that_is_too_large_is_refused(olive: Client) -> None:
    for size in (101, 200_000):
        answer = upload(olive, b"x" * size)
        assert answer.status_code == 413
        assert answer.json()["code"] == "payload_too_large"
    assert not Upload.objects.exists()
    assert upload(olive, b"x" * 100).status_code == 201


def test_a_form_without_a_file_or_with_more_is_refused(olive: Client) -> None:
    for form in (
        {},
        {"file": "/etc/passwd"},
        {"file": SimpleUploadedFile("a", b"1"), "path": "x"},
    ):
        answer = olive.http.post("/api/v1/uploads/", form, format="multipart")
        assert answer.status_code == 400
        assert answer.json()["code"] == "invalid_body"
    assert olive.post("uploads/", {"file": "/etc/passwd"}).status_code == 415


def test_uploading_needs_the_right_to_start(rita: Client) -> None:
    assert upload(rita).json()["code"] == "forbidden"


def test_a_repeated_upload_under_one_key_is_kept_once(olive: Client) -> None:
    first, second = (upload(olive, **{"Idempotency-Key": "u-1"}) for _ in range(2))
    assert first.json() == second.json()
    assert Upload.objects.count() == 1
    assert upload(olive, b"other", **{"Idempotency-Key": "u-1"}).status_code == 422


def test_a_reference_whose_file_is_gone_is_unknown(
    olive: Client, tmp_path: Path
) -> None:
    reference = upload(olive).json()
    (tmp_path / "uploads" / reference["file"]).unlink()
    with pytest.raises(uploads.UnknownThing):
        uploads.open_ref(reference)
