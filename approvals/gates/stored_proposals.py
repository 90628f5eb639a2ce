"""The proposals of tasks about which people are asked again: the stored revisions of
their writes, and why they are asked. No node runs for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from approvals.gates.request_state import why_of
from approvals.models import ApprovalRequest
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Gate, Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.gate import present
from orchestrator.engine.graphs.question import stored_question
from orchestrator.engine.graphs.write import stored_form
from orchestrator.engine.step.reduce import HeldWrite


@frozen
class Presented:
    """The sources of labels, beside the writes: the run's input and its state. In an
    `encrypted` run only a label of the node may stand in a plain column.
    """

    input: Any
    state: Mapping[str, Mapping[str, Any]]
    encrypted: bool


def revisions_of(
    request: ApprovalRequest, protection: Protection
) -> tuple[list[PendingWrite], list[PendingWrite]]:
    """Return the first and the newest revision of each write of a request, by
    position. Raises `TamperedRow`, `WrongKey`.
    """
    rows = PendingWrite.objects.filter(
        run=request.run_id,
        line=request.line,
        node=request.node,
        visit=request.visit,
        index=request.index,
    )
    first = list(rows.filter(revision=1).order_by("position"))
    newest = list(pending_writes.newest(rows).order_by("position"))
    sealed_rows.verify_rows([*first, *newest], protection)
    return first, newest


def proposal_of(
    task: Task, gate: Gate, rows: Sequence[PendingWrite], presented: Presented
) -> list[HeldWrite]:
    """Return these revisions of a task's writes as its proposal."""
    held: list[HeldWrite] = []
    for row in rows:
        shown = read_value(row, "shown") or {}
        plain = HeldWrite(
            task,
            row.position,
            row.channel,
            read_value(row, "value"),
            version=pending_writes.base_of(row).version,
            question=stored_question(shown),
            form=stored_form(shown),
        )
        label = str(shown.get("label") or row.label)
        is_secret = presented.encrypted and label != row.label
        # The label of a question is its node's prompt; a column holds the start of it.
        if plain.question is not None:
            held.append(replace(plain, label=label))
        elif is_secret or label == _label_by_gate(gate, plain, presented):
            held.append(plain)
        else:
            held.append(replace(plain, label=label))
    return held


def _label_by_gate(gate: Gate, write: HeldWrite, presented: Presented) -> str:
    """Return the label that the gate gives a write by itself."""
    shown = present(
        gate,
        node=write.task.node,
        input=presented.input,
        state=presented.state,
        writes=[write],
    )
    return str(shown["writes"][0]["label"])


def who_re_opened(username: str, reason: str) -> str:
    """Return the sentence on a re-opening that its request shows."""
    return f"{username} re-opened it under another policy: {reason}"


def why_at_first(request: ApprovalRequest, protection: Protection) -> str:
    """Return why people were asked, without the sentences of re-openings: the log has
    those. One query for a request that is not the first of its task, else none. Raises
    `TamperedRow`, `WrongKey`.
    """
    why = why_of(request)
    if request.ordinal == 0:
        return why
    reopened = RunEvent.objects.filter(
        run=request.run_id, task=request.task, type="request_reopened"
    )
    for event in reopened:
        sealed_rows.verify_row(event, protection)
        facts = read_value(event, "payload") or {}
        # It may have been erased.
        if facts.get("reason"):
            why = _without(why, who_re_opened(event.actor, facts["reason"]))
    return why


def _without(text: str, sentence: str) -> str:
    before, _, after = text.partition(sentence)
    remaining = [before.removesuffix(". "), after.removeprefix(". ")]
    return ". ".join(filter(None, remaining))
