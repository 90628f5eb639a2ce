"""Answers that go with a fork or a rewind: decisions on what people were asked at that
checkpoint, made by the person who forks or rewinds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from approvals import reviews
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.values import canonical
from orchestrator.travel.departure import HeldTask

Answers = Mapping[str, Mapping[str, Any]] | None
"""{node: {channel: value}}"""


def check_answers(answers: Answers, held_tasks: Sequence[HeldTask]) -> None:
    """Raise `InvalidValue` if an answer is for something about which nobody is asked at
    this checkpoint, or for several writes at once. `held_tasks` are what waits there.
    """
    if answers is None:
        return
    if not isinstance(answers, Mapping):
        raise InvalidValue(
            "answers are an object: {node: {channel: value}}", path="answers"
        )
    waiting_writes: Counter[tuple[str, str]] = Counter()
    for held_task in held_tasks:
        for write in held_task.writes:
            waiting_writes[held_task.task.node, write.channel] += 1

    for node, values in answers.items():
        # A key of another type would name nothing when the answers are signed.
        if not isinstance(node, str) or not isinstance(values, Mapping):
            raise InvalidValue(
                f"answers of {node} are an object: {{channel: value}}",
                path=f"answers.{node}",
            )
        for channel in values:
            if not isinstance(channel, str):
                raise InvalidValue(
                    f"answers of {node} are by the name of a channel, not by {channel!r}",
                    path=f"answers.{node}",
                )
            _require_one_write(waiting_writes, node, channel)


def _require_one_write(
    waiting_writes: Counter[tuple[str, str]], node: str, channel: str
) -> None:
    """Raise `InvalidValue` unless exactly one write of this node to this channel waits."""
    path = f"answers.{node}.{channel}"
    # Answers decide on what nodes proposed; a patch that waits is nobody's proposal.
    count = waiting_writes[node, channel] if node != PATCH else 0
    if count == 1:
        return
    if count > 1:
        raise InvalidValue(
            f"{node} proposed {count} writes to {channel}: "
            "sign them one by one, once the fork or rewind is there",
            path=path,
            writes=count,
        )
    raise InvalidValue(
        f"nothing that {node} proposed for {channel} waits at this checkpoint; "
        "choose one where it does",
        path=path,
        waits=sorted(f"{waiting[0]}.{waiting[1]}" for waiting in waiting_writes),
    )


def sign_answers(run: Run, answers: Answers, *, by: Any) -> None:
    """Sign what the answers decide: an answer that equals the proposal approves it, any
    other edits it.
    """
    if not answers:
        return
    decisions: list[dict[str, Any]] = []
    for row in PendingWrite.objects.filter(run=run.id, line=run.line, revision=1):
        values = answers.get(row.node, {})
        if row.channel in values:
            decisions.append(_decision(row, values[row.channel]))
    reviews.sign(run.id, decisions, by=by)


def _decision(row: PendingWrite, value: Any) -> dict[str, Any]:
    decision: dict[str, Any] = {"write": str(row.write), "hash": row.hash}
    # A question has no proposal, so that null answers it as any value does.
    is_asked = is_unanswered(read_value(row, "shown"))
    # Compared in canonical form, in which 1 and true differ.
    if not is_asked and canonical.dumps(value) == canonical.dumps(
        read_value(row, "value")
    ):
        return {**decision, "verdict": "approve"}
    return {**decision, "verdict": "edit", "value": value}
