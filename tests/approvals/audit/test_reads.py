"""Decisions and acts are in the audit log, whose lines are for whom, and nothing costs
more beside many.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F
from django.utils import timezone

from approvals import reviews
from approvals.audit import reads as audit
from approvals.audit.reads import LineFilter
from approvals.models import Decision
from checkpoints import retention
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.core.tombstone import TEXT
from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from orchestrator import runs
from orchestrator.engine.errors import StaleProposal, UnknownThing
from tests.support.cast import People
from tests.support.full_installation import remove
from tests.support.page_people import claim_graph, run
from tests.support.rows import missing
from tests.support.run_actions import pending, sign

__all__ = ["claim_graph", "run"]


def kinds(user: User, **options: Any) -> list[str]:
    return [
        line.kind
        for line in audit.filtered(audit.visible_lines(user), LineFilter(**options))
    ]


def test_a_signing_is_a_line_of_its_own_commit_and_names_its_receipt(
    run: Run, people: People
) -> None:
    receipt = sign(run, people.reviewer, ["approve"] * len(pending(run)))
    line = AuditLine.objects.get(kind="signed")
    first = Decision.objects.order_by("event_seq").first()
    assert first is not None
    assert line.actor == people.reviewer
    assert line.run == run.id
    assert line.graph == "page_claim"
    assert line.facts["receipt"] == str(receipt.id)
    assert line.facts["seq"] == first.event_seq
    assert sum(line.facts["verdicts"].values()) == Decision.objects.count()
    sealed_rows.verify_row(line, sealed_rows.PLAIN)


def test_a_signing_that_did_not_happen_leaves_no_line(run: Run, people: People) -> None:
    row = pending(run)[0]
    stale = [{"write": str(row.write), "hash": "0" * 64, "verdict": "approve"}]
    with pytest.raises(StaleProposal):
        reviews.sign(run.id, stale, by=people.reviewer)
    assert not AuditLine.objects.filter(kind="signed").exists()


def test_who_moves_a_run_is_in_the_log_with_the_line_that_tells_why(
    run: Run, people: People
) -> None:
    start = f"{run.key}:initial"
    fork = runs.fork(start, reason="another try", by=people.steward)
    replay = runs.replay(start, by=people.steward)
    runs.rewind(run.id, start, reason="wrong account", by=people.starter)
    runs.cancel(run.id, by=people.starter, reason="a mistake")
    lines = {line.kind: line for line in AuditLine.objects.exclude(kind="signed")}
    assert {kind: line.run for kind, line in lines.items()} == {
        "forked": fork.id,
        "replayed": replay.id,
        "rewound": run.id,
        "cancelled": run.id,
    }
    assert lines["rewound"].facts["checkpoint"] == 0
    comments = audit.comments(audit.with_runs(AuditLine.objects.all(), people.auditor))
    assert {
        lines[kind].id: text
        for kind, text in (
            ("forked", "another try"),
            ("rewound", "wrong account"),
            ("cancelled", "a mistake"),
        )
    } == comments


def test_the_reason_of_a_hold_and_of_an_erasure_is_told_beside_its_line(
    run: Run, people: People
) -> None:
    held = retention.hold(run.id, "the court asks", by=people.steward)
    retention.release_hold(held.id, by=people.steward, reason="the case is closed")
    runs.cancel(run.id, by=people.starter, reason="a mistake")
    retention.erase(run.id, reason="a person asked", by=people.steward)
    comments = audit.comments(audit.with_runs(AuditLine.objects.all(), people.auditor))
    kept = {line.kind: comments.get(line.id) for line in AuditLine.objects.all()}
    assert kept["run_held"] == "the court asks"
    assert kept["hold_released"] == "the case is closed"
    assert kept["run_erased"] == "a person asked"
    assert kept["cancelled"] == TEXT


def test_auditors_read_all_lines_viewers_those_of_runs_and_others_their_own(
    people: People,
) -> None:
    audit_log.record("keys_rotated", actor=None)
    audit_log.record("refused_cancel", actor=people.reviewer, run=missing())
    audit_log.record("signed", actor=people.starter, run=missing())
    assert (
        kinds(people.auditor)
        == kinds(people.steward)
        == ["signed", "refused_cancel", "keys_rotated"]
    )
    assert kinds(people.starter) == ["signed", "refused_cancel"]
    assert kinds(people.reviewer) == ["refused_cancel"]
    assert kinds(people.nobody) == []
    people.auditor.is_active = False
    assert kinds(people.auditor) == []


def test_the_log_is_narrowed_by_person_run_graph_kind_and_time(
    run: Run, people: People
) -> None:
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    audit_log.record("refused_cancel", actor=people.nobody, run=run.id)
    audit_log.record("keys_rotated", actor=people.steward)
    audit_log.record("refused_login", actor=None)
    now = timezone.now()
    AuditLine.objects.filter(kind="keys_rotated").update(at=now - timedelta(days=9))
    everybody = people.auditor
    assert kinds(everybody, who="nobody") == ["refused_cancel"]
    assert kinds(everybody, who="who is that") == []
    assert (
        kinds(everybody, run=run.key)
        == kinds(everybody, run=str(run.id))
        == ["refused_cancel", "signed"]
    )
    assert kinds(everybody, graph="page_claim", kind="signed") == ["signed"]
    assert kinds(everybody, until=now - timedelta(days=1)) == ["keys_rotated"]
    assert kinds(everybody, since=now - timedelta(days=1)) == [
        "refused_login",
        "refused_cancel",
        "signed",
    ]


def test_what_a_job_writes_every_minute_is_listed_where_it_is_asked_for(
    people: People,
) -> None:
    audit_log.record("heads_anchored", actor=None, heads=[])
    assert kinds(people.auditor) == []
    assert kinds(people.auditor, kind="heads_anchored") == ["heads_anchored"]


@pytest.mark.django_db(transaction=True)
def test_the_decisions_behind_a_line_are_there_also_where_the_run_is_gone(
    run: Run, people: People
) -> None:
    """Retention leaves the row of a run that people decided in; whoever owns the
    database does not.
    """
    sign(run, people.reviewer, ["approve"] * len(pending(run)))
    line = AuditLine.objects.get(kind="signed")
    made = list(Decision.objects.order_by("id").values_list("id", flat=True))
    remove(run)
    assert not Run.objects.filter(id=run.id).exists()
    audit_line = audit.find_line(people.auditor, line.id)
    evidence = audit.evidence_of(audit_line)
    assert sorted(decision.id for decision in evidence.decisions) == sorted(made) != []
    assert {decision.verdict for decision in evidence.decisions} == {"approve"}
    assert fault_of(audit_line, sealed_rows.PLAIN) is None
    assert [
        fault_of(decision, evidence.protection) for decision in evidence.decisions
    ] == [None] * len(made)
    with pytest.raises(UnknownThing):
        audit.find_line(people.reviewer, line.id)


def test_a_line_of_a_run_that_one_may_not_see_is_unknown(
    run: Run, people: People
) -> None:
    audit_log.record("refused_cancel", actor=people.nobody, run=run.id)
    line = AuditLine.objects.get()
    people.nobody.user_permissions.add(Permission.objects.get(codename="view_audit"))
    reader = User.objects.get(pk=people.nobody.pk)
    assert "refused_cancel" in kinds(reader)
    with pytest.raises(UnknownThing):
        audit.find_line(reader, line.id)
    [shown] = audit.with_runs(audit.visible_lines(reader).filter(id=line.id), reader)
    assert shown.run_label is None, (
        "a list tells nothing of a run that its reader may not see"
    )


NARROWED: list[tuple[str, Callable[[People, Run], dict[str, Any]]]] = [
    ("audit_line_newest", lambda people, run: {}),
    ("audit_line_actor_newest", lambda people, run: {"who": people.nobody.username}),
    ("audit_line_run_newest", lambda people, run: {"run": run.key}),
    ("audit_line_graph_newest", lambda people, run: {"graph": "rare"}),
    ("audit_line_kind_newest", lambda people, run: {"kind": "keys_rotated"}),
    (
        "audit_line_newest",
        lambda people, run: {"since": timezone.now() - timedelta(days=900)},
    ),
]


@pytest.fixture
def long_log(run: Run, people: People) -> None:
    """Eight thousand lines, and a planner that knows of them."""
    now = timezone.now()
    rows = [
        AuditLine(
            at=now - timedelta(minutes=n),
            kind="heads_anchored" if n % 3 else "signed",
            facts={},
            graph=f"g{n % 7}",
            run=None if n % 300 else missing(),
            actor=people.steward if n % 2 else None,
        )
        for n in range(8_000)
    ]
    AuditLine.objects.bulk_create(rows, batch_size=5000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE checkpoints_auditline")


def test_each_filter_is_answered_from_an_index_in_its_order(
    long_log: None, run: Run, people: People
) -> None:
    for index, filter_of in NARROWED:
        lines = audit.filtered(
            audit.visible_lines(people.auditor), LineFilter(**filter_of(people, run))
        )
        _found_by(index, lines[:51])
    _found_by(
        "audit_line_of_runs",
        audit.filtered(audit.visible_lines(people.starter), LineFilter())[:51],
    )
    _found_by(
        "audit_line_actor_newest",
        audit.filtered(audit.visible_lines(people.reviewer), LineFilter())[:51],
    )
    _found_by(
        "audit_line_at",
        audit.filtered(AuditLine.objects.all(), LineFilter(), routine=True)[:51],
    )


def test_a_page_far_down_and_two_filters_at_once_read_few_lines(
    long_log: None, people: People
) -> None:
    everything = audit.visible_lines(people.auditor)
    late = timezone.now() - timedelta(minutes=6_000)
    for criteria in (
        {},
        {"who": people.steward.username},
        {"graph": "g3"},
        {"kind": "signed"},
    ):
        _found_by(
            "audit_line_",
            audit.filtered(everything, LineFilter(**criteria), routine=True).filter(
                at__lte=late
            )[:51],
        )
    with connection.cursor() as cursor:
        for criteria in (
            {"graph": "g3", "kind": "signed"},
            {"who": people.steward.username, "since": late},
        ):
            lines = audit.filtered(everything, LineFilter(**criteria))[:51]
            assert "SCAN checkpoints_auditline\n" not in lines.explain() + "\n"
            assert "Seq Scan" not in lines.explain()
        AuditLine.objects.filter(id__lte=AuditLine.objects.latest("id").id - 30).update(
            number=F("id")
        )
        cursor.execute("ANALYZE checkpoints_auditline")
    new = AuditLine.objects.filter(number=None).order_by("id")[: audit_chain.BATCH]
    assert len(new) == 30
    assert re.search("auditline_number|sqlite_autoindex", new.explain()), new.explain()


def _found_by(index: str, lines: Any) -> None:
    plan = lines.explain()
    assert index in plan, plan
    assert not re.search("TEMP B-TREE|Sort", plan), plan
