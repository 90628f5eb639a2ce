"""Answers that go with a fork or a rewind: decisions on what people were asked at that point, by who goes back."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from approvals import reviews
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import canonical
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.held_patch import PATCH
from orchestrator.runs.departure import HeldTask

Answers = Mapping[str, Mapping[str, Any]] | None
"""{node: {channel: value}}"""


def check_answers(answers: Answers, asked: Sequence[HeldTask]) -> None:
    """Raise `InvalidValue` where an answer is for what nobody is asked at this point, or for several writes at once."""
    if answers is not None and not isinstance(answers, Mapping):
        raise InvalidValue("answers are an object: {node: {channel: value}}", path="answers")
    waits = Counter((one.task.node, write.channel) for one in asked for write in one.writes)
    for node, given in (answers or {}).items():
        if not isinstance(given, Mapping):
            raise InvalidValue(f"answers of {node} are an object: {{channel: value}}", path=f"answers.{node}")
        for channel in given:
            _check_one(waits, str(node), str(channel))


def _check_one(waits: Counter[tuple[str, str]], node: str, channel: str) -> None:
    where, many = f"answers.{node}.{channel}", waits[node, channel] if node != PATCH else 0
    if many == 1:
        return
    if many:
        message = f"{node} proposed {many} writes to {channel}: sign them one by one, once the fork or rewind is there"
        raise InvalidValue(message, path=where, writes=many)
    message = f"nothing that {node} proposed for {channel} waits at this checkpoint; choose one where it does"
    raise InvalidValue(message, path=where, waits=sorted(f"{n}.{c}" for n, c in waits))


def sign_answers(run: Run, answers: Answers, *, by: Any) -> None:
    """Sign what the answers decide: an approval where it is what was proposed, else an edit."""
    if answers:
        rows = PendingWrite.objects.filter(run=run.id, line=run.line, revision=1)
        answered = [(row, answers.get(row.node, {})) for row in rows]
        reviews.sign(run.id, [_decision(row, of[row.channel]) for row, of in answered if row.channel in of], by=by)


def _decision(row: PendingWrite, value: Any) -> dict[str, Any]:
    named = {"write": str(row.write), "hash": row.hash}
    if canonical.dumps(value) == canonical.dumps(read_value(row, "value")):
        return {**named, "verdict": "approve"}
    return {**named, "verdict": "edit", "value": value}
