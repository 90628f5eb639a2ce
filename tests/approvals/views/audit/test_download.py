"""The export of the audit log: who may take it along, what stands in it, and that it is
written as it is read.
"""

import asyncio
import csv
import io
import json
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from approvals.views.audit import download
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows
from orchestrator import runs
from orchestrator.engine.values import canonical
from tests.support.browsers import Browser, parts_of
from tests.support.cast import People
from tests.support.rows import a_run

Browse = Callable[[User], Client]


def exported(client: Client, format: str, **options: str) -> str:
    answer: Any = client.get(reverse("audit_export", args=[format]), options)
    assert answer.status_code == 200
    assert answer.streaming
    return b"".join(answer.streaming_content).decode()


@pytest.fixture
def log(people: People) -> list[AuditLine]:
    for n in range(7):
        audit_log.record(
            "keys_rotated" if n % 2 else "heads_anchored",
            actor=people.steward,
            key=f"k{n}",
            rows={"checkpoints_run": n},
        )
    audit_chain.chain_lines()
    return list(AuditLine.objects.order_by("number"))


def test_the_whole_log_is_exported_with_its_chain_and_the_chain_can_be_followed(
    log: list[AuditLine],
    people: People,
    browse: Browse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(download, "BATCH", 3)
    rows = [
        json.loads(line)
        for line in exported(browse(people.auditor), "jsonl").splitlines()
    ]
    chained = [row for row in rows[::-1] if row["number"]]
    assert [row["number"] for row in chained] == [1, 2, 3, 4, 5, 6, 7]
    before = ""
    for row in chained:
        data = canonical.framed(
            "countersign audit 1", before, row["number"], bytes.fromhex(row["seal"])
        )
        assert (
            sealed_rows.mac_of(row["seal_key"], data, lambda: "").hex() == row["hash"]
        )
        before = row["hash"]


def test_an_export_leaves_a_line_before_its_first_byte_and_keeps_to_the_filters(
    log: list[AuditLine], people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    assert client.head(reverse("audit_export", args=["csv"])).status_code == 405
    assert not AuditLine.objects.filter(kind="audit_exported").exists()
    answer = client.get(reverse("audit_export", args=["csv"]), {"kind": "keys_rotated"})
    line = AuditLine.objects.get(kind="audit_exported")
    assert line.actor == people.auditor
    assert line.facts == {"format": "csv", "only": {"kind": "keys_rotated"}}
    rows = list(
        csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode()))
    )  # type: ignore[attr-defined]
    assert {row["kind"] for row in rows} == {"keys_rotated"}
    assert len(rows) == 3
    assert (
        client.get(reverse("audit_export", args=["csv"]), {"from": "x"}).status_code
        == 400
    )


def test_an_export_keeps_to_a_range_of_time(
    people: People, browse: Browse, settings: Any
) -> None:
    """From its beginning on, to before its end; a day is one of the reader's time zone,
    and its end is all of it.
    """
    settings.TIME_ZONE = "Europe/Vienna"
    ends = ("2026-03-10T22:59:59Z", "2026-03-10T23:00:00Z")
    for n, at in enumerate(
        ("2026-03-09T22:59:59Z", "2026-03-09T23:00:00Z", "2026-03-10T12:00:00Z", *ends)
    ):
        line = audit_log.record("cancelled", actor=None, n=n)
        AuditLine.objects.filter(id=line.id).update(at=datetime.fromisoformat(at))
    client = browse(people.auditor)
    for begin, end, expected in (
        ("2026-03-10", "2026-03-10", [1, 2, 3]),
        ("2026-03-10", "", [1, 2, 3, 4]),
        ("", "2026-03-09", [0]),
        ("2026-03-10T12:00:00Z", "2026-03-10T23:00:00Z", [2, 3]),
        ("2026-03-10T13:00:01", "2026-03-11T00:00:01", [3, 4]),
        ("2026-03-12", "2026-03-11", []),
    ):
        bounds = {name: text for name, text in (("from", begin), ("to", end)) if text}
        rows = exported(client, "jsonl", kind="cancelled", **bounds).splitlines()
        said = sorted(json.loads(row)["facts"]["n"] for row in rows)
        assert said == expected, (begin, end)


@pytest.mark.parametrize(
    "first", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"]
)
def test_a_cell_that_would_be_a_formula_is_none(
    first: str, people: People, browse: Browse
) -> None:
    runs.cancel(
        a_run(key="CLM-2").id, by=people.starter, reason=f"{first}cmd|' /C calc'!A0"
    )
    [row] = csv.DictReader(
        io.StringIO(
            exported(browse(people.auditor), "csv", kind="cancelled"), newline=""
        )
    )
    assert row["comment"] == f"'{first}cmd|' /C calc'!A0"


def test_who_may_not_read_the_log_learns_of_no_export_and_who_may_not_export_is_told(
    people: People, browse: Browse
) -> None:
    for user in (people.starter, people.reviewer, people.nobody):
        assert (
            browse(user).get(reverse("audit_export", args=["csv"])).status_code == 404
        )
    assert browse(people.auditor).get("/audit/export.xlsx").status_code == 404
    answer = browse(people.steward).get(reverse("audit_export", args=["csv"]))
    assert answer.status_code == 403
    assert "needs the right to export" in answer.content.decode()
    assert AuditLine.objects.get().kind == "refused_export"
    html = browse(people.steward).get(reverse("audit")).content.decode()
    assert "You may read the log, but not export it." in html
    assert "Export CSV" not in html


@pytest.mark.django_db(transaction=True)
def test_under_asgi_the_first_batch_leaves_before_the_last_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    people = People()
    for n in range(30):
        audit_log.record(
            "keys_rotated", actor=None, key=f"k{n}", rows={"checkpoints_run": n}
        )
    read: list[int] = []
    plain = download._batches

    def watched(*args: Any) -> Any:
        for batch in plain(*args):
            read.append(len(batch))
            yield batch

    monkeypatch.setattr(download, "BATCH", 10)
    monkeypatch.setattr(download, "_batches", watched)
    # The thread that reads would keep its connection, and the test database could not
    # be dropped.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    counted = parts_of(
        "/audit/export.jsonl", Browser(people.auditor).cookie, lambda part: len(read)
    )
    sizes = asyncio.run(counted)
    assert sizes[0] < len(read), "the first batch is sent before the last one is read"


def test_an_export_of_many_lines_takes_no_more_memory_and_three_statements_a_batch(
    people: People, browse: Browse
) -> None:
    statement = {"said": "x" * 500}
    browser = browse(people.auditor)
    most = []
    for count in (1000, 5000):
        rows = [
            AuditLine(at=timezone.now(), kind="keys_rotated", facts=statement)
            for _ in range(count)
        ]
        AuditLine.objects.bulk_create(rows)
        answer: Any = browser.get(reverse("audit_export", args=["jsonl"]))
        tracemalloc.start()
        with CaptureQueriesContext(connections["default"]) as sent:
            size = sum(len(chunk) for chunk in answer.streaming_content)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    print(
        f"export: {size} bytes, {most[1] / 2**20:.1f} MiB of Python's own;"
        f" {most[0] / 2**20:.1f} MiB for a fifth"
    )
    batches = -(-AuditLine.objects.count() // download.BATCH)
    assert len(sent) <= 3 * batches + 1
    # Five times the lines; the statements that the test itself keeps weigh a little
    # more.
    assert most[1] < 2 * most[0]
