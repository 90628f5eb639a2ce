"""Files are sent part by part, under ASGI as under WSGI, with their length, and are
closed at the end.
"""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.urls import reverse

from approvals import downloads
from approvals.downloads import csv_cell, file_answer
from checkpoints import bundle
from checkpoints.models import Run
from orchestrator.views.bundles.pages import export_page
from tests.support.browsers import Browser, parts_of
from tests.support.bundles import signed_run
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(tmp_path: Path, people: People) -> Run:
    return signed_run(tmp_path, people)


def test_under_asgi_the_first_part_of_a_bundle_leaves_before_the_last_is_read(
    run: Run, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = downloads._part_of

    def watched(file: Any) -> bytes:
        part = plain(file)
        read.append(len(part))
        return part

    monkeypatch.setattr(downloads, "PART", 1000)
    monkeypatch.setattr(downloads, "_part_of", watched)
    # The thread that reads would keep its connection, and the test database could not
    # be dropped.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    arrived = parts_of(
        f"/api/v1/runs/{run.id}/export/",
        Browser(people.auditor).cookie,
        lambda part: (len(read), part),
    )
    parts = asyncio.run(arrived)
    assert len(read) > 10
    assert parts[0][0] < len(read), "the first part is sent before the last one is read"
    assert bundle.verify(
        io.BytesIO(b"".join(part for _, part in parts)), bundle.public_key()
    ).ok


def test_the_page_of_an_export_sends_it_part_by_part_too(
    run: Run, people: People
) -> None:
    request = AsyncRequestFactory().post(reverse("export", args=[run.id]))
    request.user = people.auditor
    answer: Any = export_page(request, str(run.id))
    assert answer.status_code == 200
    assert answer.is_async is True
    answer.close()


def test_under_wsgi_a_bundle_has_its_length_and_its_name(
    run: Run, people: People
) -> None:
    client = Client()
    client.force_login(people.auditor)
    answer: Any = client.post(reverse("export", args=[run.id]))
    data = b"".join(answer.streaming_content)
    assert answer.headers["Content-Length"] == str(len(data))
    assert answer.is_async is False
    assert (
        answer.headers["Content-Disposition"]
        == f'attachment; filename="run-{run.id}.jsonl"'
    )


@pytest.mark.parametrize("factory", [RequestFactory, AsyncRequestFactory])
def test_a_file_is_closed_with_its_answer_also_where_nothing_was_read(
    factory: Any,
) -> None:
    file = io.BytesIO(b"abc")
    answer = file_answer(
        factory().get("/"), file, name="a.txt", content_type="text/plain"
    )
    assert answer.headers["Content-Length"] == "3"
    answer.close()
    assert file.closed


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "＝"])
def test_what_a_spreadsheet_would_take_for_a_formula_is_none(first: str) -> None:
    assert csv_cell(f"{first}1+1") == f"'{first}1+1"
    assert csv_cell("plain") == "plain"
