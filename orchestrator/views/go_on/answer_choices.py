"""What people were asked at a point, and what becomes of their answers: used again, changed, or asked anew."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals import permissions
from approvals.forms import controls, reading
from approvals.forms.controls import Control
from approvals.models import Decision
from approvals.views.inbox import name_of
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.held_patch import is_patch
from orchestrator.engine.requests import principals_of
from orchestrator.runs.departure import Departure, HeldTask
from orchestrator.views.go_on.value_texts import UNTYPED, ValueType, plain_text, type_of

SHORT = 300
"""Characters of a value that are shown beside its choice."""


@dataclass(slots=True)
class AnswerChoice:
    """One value that waited for people: what was proposed, what was answered, and what this person chose."""

    node: str
    channel: str
    proposed: str
    control: Control
    recorded: list[Any]
    answered: str = ""
    who: str = ""
    why_not: str = ""
    chosen: str = "ask"
    error: str = ""

    @property
    def key(self) -> str:
        return f"{self.node}.{self.channel}"


@dataclass(slots=True)
class Answers:
    """All of them, and what they come to for the verbs: {node: {channel: value}}."""

    choices: list[AnswerChoice] = field(default_factory=list)
    given: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def wrong(self) -> list[AnswerChoice]:
        return [one for one in self.choices if one.error]


def answer_choices(point: Departure, asked: Sequence[HeldTask], user: Any, posted: Mapping[str, str] | None) -> Answers:
    """The choices as they were posted. One query for what was answered, and those of the person's groups; none where
    nothing waited. Raises `TamperedRow` or `WrongKey` where a decision is not as it was signed.
    """
    found = Answers()
    held = [one for one in asked if not is_patch(one.task)]
    if not held:
        return found
    made, principals = _decisions(point, {str(one.task) for one in held}), permissions.principals_of(user)
    for one in held:
        why_not = _why_not(point, one, principals)
        for write in one.writes:
            choice = _choice(point, one, write, made.get((str(one.task), write.position)), why_not)
            same = [known for known in found.choices if known.key == choice.key]
            for known in same:
                known.why_not = (
                    known.why_not or "It proposed several writes to this channel: they are signed one by one."
                )
            found.choices += [] if same else [choice]
    for choice in found.choices:
        _read(choice, posted or {}, found)
    return found


def _decisions(point: Departure, tasks: Collection[str]) -> dict[tuple[str, int], Decision]:
    """The last decision on each write."""
    at = {"run": point.run.id, "line": point.checkpoint.line, "task__in": tasks, "request__isnull": False}
    made = list(Decision.objects.filter(**at).select_related("by").order_by("event_seq"))
    sealed_rows.verify_rows(made, sealed_rows.protection_of(point.run))
    return {(one.task, one.position): one for one in made}


def _why_not(point: Departure, one: HeldTask, principals: Collection[str]) -> str:
    gate = point.graph.nodes[one.guard].gate
    try:
        named = principals_of(point.graph, gate, point.state) if gate else []
    except InvalidValue as error:
        return f"Nobody knows whom it asks: {error.message}."
    return "" if {*named} & {*principals} else "You are not one of its reviewers, so it is asked again."


def _choice(point: Departure, one: HeldTask, write: Any, made: Decision | None, why_not: str) -> AnswerChoice:
    key, channel = f"{one.task.node}.{write.channel}", point.graph.channels.get(write.channel)
    recorded = [read_value(made, "final_value")] if made and made.verdict != "reject" else []
    value = recorded[0] if recorded else write.value
    schema: dict[str, Any] = {}
    if channel is not None:
        schema = {**channel.schema, "$defs": channel.model.model_json_schema(by_alias=False).get("$defs", {})}
    control = controls.root(schema, prefix=f"c-{key}", value=value, label="The answer instead")
    who = ""
    if made is not None:
        by = name_of(made.by) if made.by else "The system"
        who = f"{by} {'rejected it' if made.verdict == 'reject' else 'answered'}"
    kind = type_of(channel) if channel is not None else UNTYPED
    answered = _short(recorded[0], kind) if recorded else ""
    return AnswerChoice(
        one.task.node, write.channel, _short(write.value, kind), control, recorded, answered, who, why_not
    )


def _short(value: Any, kind: ValueType) -> str:
    text = plain_text(value, kind)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _read(choice: AnswerChoice, posted: Mapping[str, str], found: Answers) -> None:
    chosen = posted.get(f"a-{choice.key}", "ask")
    if choice.why_not or chosen not in ("reuse", "change"):
        return
    choice.chosen = chosen
    if chosen == "reuse" and choice.recorded:
        found.given.setdefault(choice.node, {})[choice.channel] = choice.recorded[0]
    elif chosen == "change":
        value = reading.read_form(choice.control, posted)
        if wrong := reading.errors(choice.control):
            choice.error = wrong[0].error
        else:
            found.given.setdefault(choice.node, {})[choice.channel] = None if value is reading.ABSENT else value
