"""A sealed line that lacks a fact, or has another kind of value in its place, is named,
and ends in no traceback.
"""

from typing import Any
from uuid import uuid4

import pytest

from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import Run, RunEvent
from checkpoints.verification import audit, line_facts, log_fold, verify_run
from orchestrator.engine.errors import TamperedRow
from tests.support import api_graphs, rows
from tests.support.cast import People

pytestmark = pytest.mark.django_db

SAMPLES: dict[Any, Any] = {
    line_facts._anything: "x",
    line_facts._text: "x",
    line_facts._name: "x",
    line_facts._number: 1,
    line_facts._yes_or_no: False,
    line_facts._id: str(uuid4()),
    line_facts._names: ["x"],
    line_facts._ids: [str(uuid4())],
    line_facts._object: {},
    line_facts._pairs: [["x", "y"]],
    line_facts._snapshots: [[str(uuid4()), "y"]],
    line_facts._counts: {"node:1:0": 1},
}
OTHERS: tuple[Any, ...] = (None, 7.5, True, 3, "x", ["x"], [7], {"x": 1})
"""Values of all kinds that JSON has."""
TYPES = sorted({*line_facts.NEEDED, *line_facts.POSSIBLE})


def _whole(type_: str) -> dict[str, Any]:
    """All facts that a line of this type may have."""
    kinds = {**line_facts.NEEDED.get(type_, {}), **line_facts.POSSIBLE.get(type_, {})}
    if type_ == "run_started":
        kinds |= line_facts._DEPARTED
    return {name: SAMPLES[kind] for name, kind in kinds.items()}


def _kind(type_: str, name: str) -> Any:
    kinds = {
        **line_facts._DEPARTED,
        **line_facts.POSSIBLE.get(type_, {}),
        **line_facts.NEEDED.get(type_, {}),
    }
    return kinds[name]


def _reasons(type_: str, payload: Any, task: str = "node:1:0") -> list[str]:
    run = rows.a_run()
    # Behind a gap, where the hash of the line before is not known.
    rows.an_event(run, 2, type=type_, payload=payload, task=task)
    return [
        fault.reason
        for fault in verify_run(run.id)
        if fault.table == RunEvent._meta.db_table
    ]


@pytest.mark.parametrize("type_", TYPES)
def test_a_line_with_all_its_facts_is_not_named_for_them(type_: str) -> None:
    reasons = _reasons(type_, _whole(type_))
    assert not [reason for reason in reasons if "fact" in reason]


@pytest.mark.parametrize("type_", TYPES)
def test_a_fact_that_is_not_there_is_named_or_may_be_absent(type_: str) -> None:
    for name in _whole(type_):
        payload = _whole(type_)
        del payload[name]
        named = any(
            f"lacks the fact {name!r}" in reason for reason in _reasons(type_, payload)
        )
        assert named == (
            name in line_facts.NEEDED.get(type_, {}) or _goes_with_another(type_, name)
        ), name


def _goes_with_another(type_: str, name: str) -> bool:
    return any(
        type_ == of and name in others and name != fact
        for of, fact, others in line_facts.TOGETHER
    )


@pytest.mark.parametrize("type_", TYPES)
def test_a_fact_of_another_kind_is_named(type_: str) -> None:
    for name in _whole(type_):
        fits = _kind(type_, name)
        for other in OTHERS:
            if fits(other):
                continue
            reasons = _reasons(type_, {**_whole(type_), name: other})
            assert any(
                f"another kind of value as its fact {name!r}" in reason
                for reason in reasons
            ), (name, other)


@pytest.mark.parametrize("type_", [*TYPES, "run_paused", "run_completed"])
def test_a_payload_that_is_no_object_is_named(type_: str) -> None:
    for payload in ([], "x", 7, None):
        assert any("holds no facts" in one for one in _reasons(type_, payload)), payload


@pytest.mark.parametrize(
    "type_", ["effects_started", "memory_written", "memory_deleted"]
)
@pytest.mark.parametrize("task", ["", "x", "node:1", "node:1:x", "node:1:4-2"])
def test_a_task_that_is_none_is_named(type_: str, task: str) -> None:
    if type_ != "effects_started" and task == "node:1:4-2":
        task = "node"
    assert any("names no task" in one for one in _reasons(type_, _whole(type_), task))


def test_the_fold_of_the_log_refuses_such_a_line(people: People) -> None:
    run = rows.a_run()
    checkpoint = rows.a_checkpoint(run, 0)
    rows.an_event(
        run, 1, type="checkpoint_saved", payload={"checkpoint": str(checkpoint.id)}
    )
    with pytest.raises(TamperedRow, match="lacks the fact 'kept'"):
        log_fold.document_by_log(checkpoint.id)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        [],
        7,
        {"heads": 7},
        {"heads": [["x", 1, "y"]], "upto": 1},
        {"heads": [[1]], "upto": 1},
        {"upto": 1},
    ],
)
def test_a_sealed_line_that_anchors_nothing_clear_is_named(facts: Any) -> None:
    line = audit_log.record("heads_anchored", actor=None)
    line.facts = facts
    _sealed_anew(line)
    audit_chain.chain_lines()
    [reason] = [fault.reason for fault in audit() if fault is not None]
    assert reason == "checkpoints_auditline 1 does not say which heads it anchors"


@pytest.mark.parametrize("kind", ["run_removed", "database_restored", "keys_changed"])
@pytest.mark.parametrize("facts", [{}, [], 7])
def test_another_sealed_line_that_says_nothing_clear_stops_no_verification(
    kind: str, facts: Any
) -> None:
    line = audit_log.record(kind, actor=None, run=rows.missing())
    line.facts = facts
    _sealed_anew(line)
    audit_log.record(
        "heads_anchored",
        actor=None,
        heads=[[line.run.hex if line.run else "", 1, "x"]],
        upto=1,
    )
    audit_chain.chain_lines()
    assert all(fault is None or "is gone" in fault.reason for fault in audit())


def _sealed_anew(line: Any) -> None:
    from checkpoints.sealing import sealed_rows

    sealed_rows.seal(line, sealed_rows.PLAIN)
    line.save()


def test_what_a_real_run_logs_has_all_its_facts(people: People) -> None:
    from orchestrator import runs

    api_graphs.register()
    run = runs.start("gated", {"claim_id": "C"}, key="C", by=people.starter)
    assert verify_run(Run.objects.get(id=run.id).id) == []
