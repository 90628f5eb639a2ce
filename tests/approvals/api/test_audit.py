"""The audit log over the API: narrowed as on the page, read page by page without a
count, for whom it is.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine, Run
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.run_actions import pending, sign


@pytest.fixture
def ada(people: People) -> Client:
    """A person who reads the whole log."""
    return Client(people.auditor)


@pytest.fixture
def lines(paused: Run, people: People, ada: Client) -> Run:
    """A run on which somebody signed, and lines of several kinds, people, graphs and
    times beside it.
    """
    AuditLine.objects.all().delete()
    sign(paused, people.reviewer, ["approve"] * len(pending(paused)))
    audit_log.record("refused_cancel", actor=people.nobody, run=paused.id)
    audit_log.record("history_pruned", actor=people.steward, graph="other")
    audit_log.record("heads_anchored", actor=None, heads=[])
    AuditLine.objects.filter(kind="history_pruned").update(
        at=timezone.now() - timedelta(days=9)
    )
    return paused


def kinds(client: Client, **options: Any) -> list[str]:
    answer = client.get("audit/", **options)
    assert answer.status_code == 200, answer.content
    return [line["kind"] for line in answer.json()["results"]]


def test_the_lines_are_narrowed_by_person_run_graph_kind_and_time(
    lines: Run, ada: Client
) -> None:
    week = (timezone.now() - timedelta(days=7)).isoformat()
    assert kinds(ada) == ["refused_cancel", "signed", "history_pruned"]
    assert kinds(ada, by="rita") == ["signed"]
    assert kinds(ada, by="who is that") == []
    assert (
        kinds(ada, run=lines.key)
        == kinds(ada, run=str(lines.id))
        == ["refused_cancel", "signed"]
    )
    assert kinds(ada, graph="other") == ["history_pruned"]
    assert kinds(ada, kind="heads_anchored") == ["heads_anchored"]
    assert kinds(ada, **{"from": week}) == ["refused_cancel", "signed"]
    assert kinds(ada, to=week) == ["history_pruned"]
    assert kinds(
        ada, graph="gated", kind="signed", by="rita", to=timezone.now().isoformat()
    ) == ["signed"]
    assert kinds(ada, graph="gated", kind="signed", by="nobody") == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"from": "yesterday"},
        {"to": "2026-13-01"},
        {"colour": "red"},
        {"by": "\x00"},
        {"graph": ""},
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    parameters: dict[str, str], ada: Client
) -> None:
    answer = ada.get("audit/", **parameters)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_body"


def test_each_line_is_on_one_page_and_a_page_counts_nothing(
    people: People, ada: Client
) -> None:
    for _ in range(25):
        audit_log.record("keys_rotated", actor=people.steward)
    at = timezone.now()
    AuditLine.objects.filter(
        id__in=[row.id for row in AuditLine.objects.all()[:9]]
    ).update(at=at)  # at one moment
    collected = []
    address = "/api/v1/audit/?page_size=4"
    pages = 0
    while address:
        with CaptureQueriesContext(connection) as sent:
            page = ada.http.get(address).json()
        of_log = [
            query["sql"]
            for query in sent.captured_queries
            if "auditline" in query["sql"]
        ]
        assert len(of_log) == 1
        assert "COUNT(" not in of_log[0]
        assert "count" not in page
        collected += [line["id"] for line in page["results"]]
        address = page["next"]
        pages = pages + 1
    wanted = list(AuditLine.objects.order_by("-at", "-id").values_list("id", flat=True))
    assert collected == wanted
    assert pages == -(-len(wanted) // 4)


def test_who_reads_the_log_sees_all_who_sees_runs_those_of_runs_and_others_their_own(
    lines: Run, people: People, olive: Client, rita: Client, nobody: Client
) -> None:
    assert kinds(olive) == ["refused_cancel", "signed"]
    assert kinds(rita) == ["signed"]
    assert kinds(nobody) == ["refused_cancel"]
    assert kinds(nobody, by="rita") == kinds(nobody, run=lines.key, kind="signed") == []
    pruned = AuditLine.objects.get(kind="history_pruned")
    assert Client(people.auditor).get(f"audit/{pruned.id}/").status_code == 200
    for client in (olive, rita, nobody):
        assert client.get(f"audit/{pruned.id}/").status_code == 404


def test_a_line_comes_with_the_decisions_behind_it(lines: Run, ada: Client) -> None:
    line = AuditLine.objects.get(kind="signed")
    body = ada.get(f"audit/{line.id}/").json()
    assert {decision["verdict"] for decision in body["decisions"]} == {"approve"}
    assert body["by"] == "rita"
    assert body["run"] == str(lines.id)
    assert body["fault"] is None
    for absent in (line.id + 10**6, 2**63, 10**40):
        assert ada.get(f"audit/{absent}/").status_code == 404
