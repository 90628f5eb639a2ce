"""The answers that people gave at a point, and what becomes of each: it is used again,
changed, or requested again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals import permissions
from approvals.display.drawn_change import draw_change
from approvals.display.leaf import ABSENT, Leaf
from approvals.display.value_types import schema_of_answer, schema_of_channel
from approvals.forms import controls, reading
from approvals.forms.controls import Control
from approvals.models import ANSWERS, Decision
from approvals.views.inbox import name_of
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.gates.requests import principals_of
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.step.held_patch import is_patch
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.travel.departure import Departure, HeldTask
from orchestrator.views.go_on.value_texts import type_of

SIGNED_ONE_BY_ONE = (
    "It proposed several writes to this channel: they are signed one by one."
)
NOT_A_REVIEWER = "You are not one of its reviewers, so it is asked again."


@dataclass(slots=True)
class AnswerChoice:
    """One value that waited for people: the proposed value, the recorded answer, and
    the choice of the person who drafts; of a question its `prompt`. An answer counts as
    a signature, so both values are drawn as a change is.
    """

    node: str
    channel: str
    proposed: Leaf
    control: Control
    recorded: list[Any]
    answered: Leaf | None = None
    who: str = ""
    why_not: str = ""
    chosen: str = "ask"
    error: str = ""
    prompt: str = ""

    @property
    def key(self) -> str:
        return f"{self.node}.{self.channel}"


@dataclass(slots=True)
class Answers:
    """All choices, and the answers that they give to the verbs:
    {node: {channel: value}}.
    """

    choices: list[AnswerChoice] = field(default_factory=list)
    by_node: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def wrong(self) -> list[AnswerChoice]:
        return [choice for choice in self.choices if choice.error]

    def answer(self, choice: AnswerChoice, value: Any) -> None:
        """Give the verbs this value as the answer for a choice."""
        self.by_node.setdefault(choice.node, {})[choice.channel] = value


def answer_choices(
    point: Departure,
    held_tasks: Sequence[HeldTask],
    user: Any,
    posted: Mapping[str, str] | None,
) -> Answers:
    """Return the choices as they were posted.

    One query for the recorded answers, and those of the person's groups; none if
    nothing waited. Raises `TamperedRow` or `WrongKey` if a decision is not as it was
    signed.
    """
    answers = Answers()
    # Answers decide on what nodes proposed, and a patch is no proposal of a node.
    held_tasks = [held for held in held_tasks if not is_patch(held.task)]
    if not held_tasks:
        return answers

    decisions = _decisions(point, {str(held.task) for held in held_tasks})
    principals = permissions.principals_of(user)
    for held in held_tasks:
        why_not = _why_not(point, held, principals)
        for write in held.writes:
            decision = decisions.get((str(held.task), write.position))
            choice = _choice(point, held, write, decision, why_not)
            _add_choice(answers, choice)
    for choice in answers.choices:
        _read(choice, posted or {}, answers)
    return answers


def _add_choice(answers: Answers, choice: AnswerChoice) -> None:
    """Add a choice; a second of the same node and channel bars the first instead."""
    for earlier in answers.choices:
        if earlier.key == choice.key:
            earlier.why_not = earlier.why_not or SIGNED_ONE_BY_ONE
            return
    answers.choices.append(choice)


def _decisions(
    point: Departure, tasks: Collection[str]
) -> dict[tuple[str, int], Decision]:
    """Return the last decision on each write, by task and position."""
    rows = list(
        Decision.objects.filter(
            run=point.run.id,
            line=point.checkpoint.line,
            task__in=tasks,
            # Without a request it was the system that decided.
            request__isnull=False,
        )
        .exclude(verdict__in=ANSWERS)
        .select_related("by")
        .order_by("event_seq")
    )
    sealed_rows.verify_rows(rows, sealed_rows.protection_of(point.run))
    # A later decision takes the place of an earlier one.
    return {(row.task, row.position): row for row in rows}


def _why_not(point: Departure, held: HeldTask, principals: Collection[str]) -> str:
    """Return why this person cannot answer for a task, or an empty text."""
    gate = point.graph.nodes[held.guard].gate
    if not gate:
        return NOT_A_REVIEWER
    try:
        gate = gate_on_run(point.graph, gate, point.input)
        reviewers = principals_of(point.graph, gate, point.state)
    except InvalidValue as error:
        return f"Nobody knows whom it asks: {error.message}."
    if {*reviewers} & {*principals}:
        return ""
    return NOT_A_REVIEWER


def _choice(
    point: Departure,
    held: HeldTask,
    write: HeldWrite,
    decision: Decision | None,
    why_not: str,
) -> AnswerChoice:
    channel = None
    if point.graph.has_channel(held.task.node, write.channel):
        channel = point.graph.channel_of(held.task.node, write.channel)
    schema, prompt = _asked_by(write, channel)

    # A list, because an answer may be null: a rejected or skipped write has none to use again.
    recorded: list[Any] = []
    if decision and decision.verdict not in ("reject", "skip"):
        recorded = [read_value(decision, "final_value")]

    answer = recorded[0] if recorded else ABSENT
    # A question has no value, which differs from null.
    proposed = write.value if write.question is None else ABSENT
    change = draw_change(proposed, answer, declared=type_of(channel))

    control = controls.root(
        schema,
        prefix=f"c-{held.task.node}.{write.channel}",
        value=recorded[0] if recorded else write.value,
        label="The answer instead",
    )
    return AnswerChoice(
        held.task.node,
        write.channel,
        change.before,
        control,
        recorded,
        answered=change.after if recorded else None,
        who=_who_decided(decision),
        why_not=why_not,
        prompt=prompt,
    )


def _asked_by(
    write: HeldWrite, channel: Channel | None
) -> tuple[Mapping[str, Any], str]:
    """Return the schema of the form of an answer, and the prompt of a question; empty
    for what was proposed.
    """
    # The version that goes on may not have the channel; then the answer is typed as
    # JSON.
    schema: Mapping[str, Any] = {}
    if channel is not None:
        schema = schema_of_channel(channel)
    if write.form is not None:
        return schema_of_answer(write.form["schema"], schema), ""
    if write.question is None:
        return schema, ""
    answer = schema_of_answer(write.question["schema"], schema)
    return answer, write.label or ""


def _who_decided(decision: Decision | None) -> str:
    if decision is None:
        return ""
    name = name_of(decision.by) if decision.by else "The system"
    if decision.verdict == "reject":
        return f"{name} rejected it"
    if decision.verdict == "skip":
        return f"{name} skipped it"
    return f"{name} answered"


def _read(choice: AnswerChoice, posted: Mapping[str, str], answers: Answers) -> None:
    """Read the posted choice of one value; a wrong new value becomes the error of the
    choice.
    """
    chosen = posted.get(f"a-{choice.key}", "ask")
    if choice.why_not or chosen not in ("reuse", "change"):
        return
    choice.chosen = chosen
    if chosen == "change":
        _read_new_value(choice, posted, answers)
    elif choice.recorded:
        answers.answer(choice, choice.recorded[0])


def _read_new_value(
    choice: AnswerChoice, posted: Mapping[str, str], answers: Answers
) -> None:
    value = reading.read_form(choice.control, posted)
    errors = reading.errors(choice.control)
    if errors:
        choice.error = errors[0].error
        return
    if value is reading.ABSENT:
        value = None
    answers.answer(choice, value)
