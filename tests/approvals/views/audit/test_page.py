"""The page of the audit log: what it lists, for whom, and in how many statements."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from approvals.audit.words import KINDS
from approvals.views.audit.page import PAGE
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine, Run
from checkpoints.models.audit_line import ROUTINE
from orchestrator import runs
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from tests.support import forging
from tests.support.cast import People, named
from tests.support.rows import a_run, missing
from tests.support.run_actions import pending, sign

Browse = Callable[[User], Client]


def shown(client: Client, **options: str) -> str:
    answer = client.get(reverse("audit"), options)
    assert answer.status_code == 200
    return str(answer.content.decode()).replace("<bdi>", "").replace("</bdi>", "")


def test_the_page_says_who_did_what_to_which_run_and_why(
    run: Run, people: People, browse: Browse
) -> None:
    sign(run, people.reviewer, ["approve"] * (count := len(pending(run))))
    other = a_run(key="CLM-2", label="Claim CLM-2")
    runs.cancel(other.id, by=people.starter, reason="the holder withdrew it")
    html = shown(browse(people.auditor))
    assert f"signed {count} decisions, approved" in html
    assert "asked to cancel the run" in html
    assert "the holder withdrew it" in html
    assert "Claim CLM-1" in html
    assert "Claim CLM-2" in html


def test_two_runs_of_one_label_are_told_apart_by_their_keys(
    people: People, browse: Browse
) -> None:
    for key in ("CLM-7", "CLM-7~0a1b2c3d"):
        run = a_run(key=key, label="Claim CLM-7, fork")
        runs.cancel(run.id, by=people.starter)
    html = shown(browse(people.auditor))
    assert html.count('<code class="key">CLM-7~0a1b2c3d</code>') == 1


def test_people_are_named_in_full_beside_their_accounts(
    people: People, browse: Browse
) -> None:
    named(people.reviewer, "Rita Lund")
    account = people.reviewer.get_username()
    audit_log.record(
        "members_changed",
        actor=people.steward,
        subject=f"user:{account}",
        added=["group:claims"],
    )
    html = shown(browse(people.auditor))
    assert f"added Rita Lund ({account}) to the group claims" in html


def test_what_was_removed_is_found_by_its_kind_and_told_with_graph_and_numbers(
    people: People, browse: Browse
) -> None:
    audit_log.record(
        "history_pruned", actor=people.steward, graph="claims", checkpoints=39, runs=0
    )
    html = shown(browse(people.auditor), kind="history_pruned", graph="claims")
    assert "removed 39 checkpoints" in html
    assert '<option value="history_pruned" selected>History removed</option>' in html
    assert "runs of claims" in html


def test_a_filter_is_kept_in_the_address_and_one_that_means_nothing_is_refused(
    people: People, browse: Browse
) -> None:
    audit_log.record(
        "keys_rotated",
        actor=people.steward,
        key="k2",
        rows={"checkpoints_run": 1, "checkpoints_runevent": 2},
    )
    client = browse(people.auditor)
    assert "encrypted 3 rows under k2" in shown(
        client, who="stella", kind="keys_rotated", **{"from": "2020-01-01"}
    )
    assert "No lines match these filters." in shown(client, to="2020-01-01")
    for wrong in (
        "yesterday",
        "2026-13-01",
        "2026-02-30T00:00",
        "9999-12-31",
        "0001-01-01T00:00+23:00",
    ):
        answer = client.get(reverse("audit"), {"to": wrong})
        assert answer.status_code == 400, wrong
        assert "“to” is a day" in answer.content.decode()


ODD: list[Any] = [
    [],
    "x",
    7,
    {"seq": "x", "last": [], "receipt": 3, "verdicts": 7, "rows": "x", "paths": {}},
    {"seq": 2**70},
    {
        "receipt": "x",
        "verdicts": {"approve": "y"},
        "subject": [],
        "changed": 3,
        "added": 7,
        "heads": 1,
        "scopes": 9,
    },
]
"""What no line says."""


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_a_line_that_was_changed_is_marked_and_hides_no_other(
    run: Run, people: People, browse: Browse, odd: Any
) -> None:
    kinds = sorted({*KINDS, "unheard_of"} - {ROUTINE})
    lines = [audit_log.record(kind, actor=people.steward, run=run.id) for kind in kinds]
    for line in lines:
        forging.tamper(line, facts=odd)
    sound = audit_log.record(
        "keys_rotated", actor=people.steward, key="k2", rows={"checkpoints_run": 3}
    )
    client = browse(people.auditor)
    html = shown(client)
    assert "encrypted 3 rows under k2" in html
    assert html.count('data-test="tampered"') == min(len(kinds), PAGE - 1)
    # Each kind meets some of what is odd, and what is odd some kinds; of the second
    # database they meet fewer.
    step = 5 if connection.vendor == "postgresql" else 3
    for line in (*lines[ODD.index(odd) % step :: step], sound):
        assert client.get(reverse("audit_line", args=[line.id])).status_code == 200, (
            line.kind
        )
        assert client.get(f"/api/v1/audit/{line.id}/").status_code == 200, line.kind
    assert client.get("/api/v1/audit/?page_size=200").status_code == 200
    for format in ("csv", "jsonl"):
        answer: Any = client.get(reverse("audit_export", args=[format]))
        assert b"".join(answer.streaming_content).count(b"unheard") == 2, (
            "kind and words"
        )


def test_older_lines_are_reached_by_key_and_none_is_shown_twice(
    people: People, browse: Browse
) -> None:
    made = {
        audit_log.record("keys_rotated", actor=None, key=str(n)).id for n in range(70)
    }
    AuditLine.objects.update(
        at=AuditLine.objects.earliest("id").at
    )  # one moment for all: the id decides
    client = browse(people.auditor)
    first = client.get(reverse("audit"))
    second = client.get(f"{reverse('audit')}?{first.context['older']}")
    seen = [line.id for page in (first, second) for line in page.context["rows"]]
    assert len(seen) == len(set(seen)) == 70
    assert set(seen) == made
    assert not second.context["older"]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "2026-01-01T00:00:00~1",
        "2026-01-01T00:00:00Z~x",
        "~",
        "2026-99-01T00:00Z~1",
    ],
)
def test_a_cursor_that_cannot_be_read_is_refused(
    cursor: str, people: People, browse: Browse
) -> None:
    page = browse(people.auditor).get(reverse("audit"), {"before": cursor})
    assert page.status_code == 400
    assert "“before” names no line" in page.content.decode()


def test_who_may_not_read_the_log_is_told_what_he_sees_and_is_shown_no_run_that_he_may_not_see(
    run: Run, people: People, browse: Browse
) -> None:
    audit_log.record("refused_cancel", actor=people.nobody, run=run.id)
    audit_log.record("keys_rotated", actor=None, key="secret-key")
    html = shown(browse(people.nobody))
    assert "You see what you did yourself" in html
    assert "was refused: may not cancel runs" in html
    assert "Claim CLM-1" not in html
    assert f"/audit/{AuditLine.objects.get(kind='refused_cancel').id}/" not in html
    assert "secret-key" not in html
    html = shown(browse(people.starter))
    assert "You see what was done to runs" in html
    assert "secret-key" not in html


def test_the_head_of_the_page_says_how_far_the_chain_was_verified(
    people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    assert "The chain has not been verified yet" in shown(client)
    for _ in range(3):
        audit_log.record("refused_cancel", actor=people.nobody)
    audit_chain.chain_lines()
    _verify()
    assert "Chain verified to line 3 at" in shown(client)
    AuditLine.objects.filter(number=2).update(kind="signed")
    _verify()
    assert "The chain did not verify" in shown(client)


def _verify() -> None:
    result = Verified()
    for _ in verify_runs(Wanted(), result, by=None):
        pass
    audit_log.record(
        "runs_verified",
        actor=None,
        checked=result.checked,
        failed=result.failed,
        chain=result.chain,
    )


def test_the_page_takes_four_statements_of_its_own_whatever_stands_on_it(
    run: Run, people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(people.auditor)
    counts = []
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    for more in (2, 20):
        for number in range(more):
            runs.cancel(
                a_run(key=f"{more}-{number}").id,
                by=people.starter,
                reason="done with it",
            )
            audit_log.record("refused_cancel", actor=people.nobody, run=missing())
        with django_assert_max_num_queries(40) as seen:
            client.get(reverse("audit"))
        tables = ("checkpoints_auditline", "approvals_decision", "checkpoints_runevent")
        own = [
            query
            for query in seen.captured_queries
            if any(f'FROM "{table}"' in query["sql"] for table in tables)
        ]
        counts.append((len(seen.captured_queries), len(own)))
    assert counts[0] == counts[1]
    assert counts[0][1] == 4, own


def test_nothing_in_the_log_is_taken_for_markup(people: People, browse: Browse) -> None:
    audit_log.record(
        "members_changed",
        actor=None,
        subject="user:<script>alert(1)</script>",
        added=["group:‮evil"],
    )
    html = shown(browse(people.auditor))
    assert "<script>alert" not in html
    assert "‮" not in html


def test_the_page_takes_no_post(people: People, browse: Browse) -> None:
    assert browse(people.auditor).post(reverse("audit")).status_code == 405
