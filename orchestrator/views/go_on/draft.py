"""A draft of going on from a checkpoint: patch, answers, allowed effects, name and
reason, with the plan that follows from them.

It reads the checkpoint and its surroundings, and writes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from approvals.gates.recorded_ways import require_ways
from checkpoints import timeline
from checkpoints.conf import conf
from checkpoints.core.run_key import LONGEST_KEY
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.models.run_line import Travel
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    CountersignError,
    InvalidValue,
    MissingSecrets,
    PayloadTooLarge,
    WrongStatus,
)
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.travel.patch import patched
from orchestrator.run_access.keys import checked_key
from orchestrator.run_access.needed_secrets import require_secrets
from orchestrator.travel.departure import Departure, held_tasks_at
from orchestrator.travel.overlay import Overlay, lay_over
from orchestrator.travel.plan import Plan
from orchestrator.travel.verbs import LONGEST_REASON, plan_departure
from orchestrator.views.go_on.answer_choices import Answers, answer_choices
from orchestrator.views.go_on.channel_lines import ChannelLine, channel_lines
from orchestrator.views.go_on.moved_patch import moved_patch
from orchestrator.views.go_on.other_starts import AROUND, starts_around, version_changes
from orchestrator.views.go_on.patch_form import (
    PatchForm,
    Problem,
    carried_form,
    fresh_form,
    mended_form,
    posted_form,
)
from orchestrator.views.go_on.patch_lines import PatchLine, patch_lines
from orchestrator.views.go_on.plan_lines import (
    Allowable,
    PlanSummary,
    allowables,
    plan_summary,
)
from orchestrator.views.go_on.search_hits import Hit, search_hits
from orchestrator.views.go_on.value_texts import plain_text
from orchestrator.views.run_timeline import TimelineColumn, name_of

WAYS = {
    Travel.FORK: (
        "Fork",
        "fork",
        "A new run from a copy of this checkpoint.",
        "You may change the state. The original is not touched.",
    ),
    Travel.REPLAY: (
        "Replay",
        "replay",
        "A new run that does it again with the recorded answers.",
        "Nothing outside is touched.",
    ),
    Travel.REWIND: (
        "Rewind",
        "first",
        "This run goes back to here and starts a new line.",
        "What came after stays readable, its open reviews are withdrawn.",
    ),
}
"""Name, icon, and two sentences about what it does."""
# Each problem takes one more validation of the whole patch.
MOST_PROBLEMS = 10
EVERYTHING = "*"
"""The value of `reset` that resets the whole patch instead of one path."""
LONGEST_WORD = 200
VIEWS = {"form": "Form", "json": "JSON", "ops": "Operations"}
"""The views of the patch, with their names."""


@dataclass
class GoOnDraft:
    """A draft with all that its template shows. `patch` is the part of the typed patch that is
    valid, None if nothing changes.
    """

    point: Departure
    how: str
    form: PatchForm
    answers: Answers
    overlay: Overlay
    plan: Plan
    summary: PlanSummary
    boxes: list[Allowable]
    rows: list[Checkpoint]
    patch: dict[str, Any] | None = None
    allowed: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    key: str = ""
    reason: str = ""
    message: str = ""
    fallen: list[Problem] = field(default_factory=list)
    find: str = ""

    @property
    def lines(self) -> list[PatchLine]:
        """The values that the patch changes, one line each."""
        return patch_lines(self.point, self.patch or {})

    @cached_property
    def hits(self) -> list[Hit]:
        """The places of the state that contain the searched word."""
        return search_hits(self.point.going_on, self.find)

    @property
    def channels(self) -> list[ChannelLine]:
        """The lines of the form, changed channels on top."""
        return channel_lines(
            self.point,
            self.form,
            after=patched(self.point.going_on, self.patch or {}),
            faulty={problem.channel for problem in self.problems if problem.channel},
            hits={hit.channel for hit in self.hits},
            searched=bool(self.find),
        )

    @property
    def naming_step(self) -> int:
        """The number of the last step: a replay has no step for the patch."""
        return 3 if self.may_change else 2

    @property
    def run(self) -> Run:
        return self.point.run

    @property
    def at(self) -> Checkpoint:
        return self.point.checkpoint

    @property
    def name(self) -> str:
        return name_of(self.at)

    @property
    def starts(self) -> list[tuple[TimelineColumn, UUID]]:
        """The neighbouring checkpoints, as columns of the tape, with their ids."""
        return starts_around(self.run, self.rows, self.at)

    @cached_property
    def changes_of_version(self) -> dict[str, list[str]]:
        """The differences between the graph that goes on and that of the checkpoint, by
        weight: a run would stop at a `breaking` one. Empty if the graph is the same.
        """
        if not self.point.retyped:
            return {"breaking": [], "harmless": []}
        breaking, harmless = version_changes(self.point.judgement)
        return {"breaking": breaking, "harmless": harmless}

    @property
    def other_version(self) -> str:
        """The version that goes on instead of the checkpoint's; empty if it is the same."""
        return self.point.graph.version if self.point.retyped else ""

    @property
    def migrations(self) -> str:
        """The migrations that bring the state to the version that continues."""
        return ", ".join(step.name for step in self.point.steps)

    @property
    def fault(self) -> SealFault | None:
        return fault_of(self.at, protection_of(self.run))

    @property
    def ways(self) -> dict[str, tuple[str, str, str, str]]:
        return {str(way): texts for way, texts in WAYS.items()}

    @property
    def views(self) -> dict[str, str]:
        return VIEWS

    @property
    def way(self) -> tuple[str, str, str, str]:
        return WAYS[Travel(self.how)]

    @property
    def may_change(self) -> bool:
        return self.how != Travel.REPLAY

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def changes(self) -> int:
        return len(self.overlay.change.patched)

    @property
    def guarded(self) -> list[tuple[str, str]]:
        """The channels that need new signatures, each with the node whose gate requires
        them.
        """
        return sorted(self.overlay.change.guarded.items())

    @property
    def button(self) -> str:
        """The text of the button, which names exactly what it does."""
        if self.problems:
            number = len(self.problems)
            problems = "problem" if number == 1 else "problems"
            verb = self.way[0].lower()
            return f"Fix {number} {problems} to {verb}"
        if self.how == Travel.REWIND:
            return f"Rewind to {self.at.seq}"
        if self.how == Travel.REPLAY:
            return "Replay"
        if self.guarded:
            return "Fork and ask for signatures"
        return "Fork and run"

    def refuse(self, error: CountersignError) -> None:
        """Show why nothing was done, beside the name if that is the reason."""
        if error.facts.get("path") == "key":
            self.problems.append(Problem("name", error.message, self.key))
        else:
            self.message = error.message

    def rewound_before(self, by: Any, line: int) -> bool:
        """Return whether this person already rewound the run to this checkpoint from
        the given line, so that the page was posted twice.

        One query, none if the run is still on that line.
        """
        if self.run.line == line:
            return False
        # A rewind from a page that shows one line begins the line of the next number.
        following = RunLine.objects.filter(
            run=self.run.id, number=line + 1, departure=self.at.id, by=by
        )
        return following.exists()


def draft_of(
    point: Departure,
    user: Any,
    posted: Mapping[str, str],
    *,
    how: str,
    moved_from: Departure | None = None,
) -> GoOnDraft:
    """Return the draft as it was posted, at this point or at the one that it was moved
    from; without a post, one in which nothing is changed.

    Three queries beside the checkpoint's own, whatever the run's length; two more if
    the point asked people, three more if something was forked from its runs, and one an
    origin.
    """
    if how not in WAYS:
        how = str(Travel.FORK)
    may_change = how != Travel.REPLAY

    form, fallen = _form_of(point, posted, moved_from)
    if not may_change:
        form = _form_of_replay(point, form)
        fallen = []
    form, patch, problems = _checked_form(point, form, mend=posted.get("mend", ""))

    overlay = lay_over(point, patch or None, by=user.get_username(), asks=may_change)
    # A replay takes the recorded answers, and asks nobody.
    held = held_tasks_at(point) if may_change else []
    answers = answer_choices(point, held, user, posted if may_change else None)
    allowed = _allowed_nodes(point, posted, may_change=may_change)
    # The verbs plan with the same function, so the page lists what they will do.
    plan = plan_departure(point, overlay, held, how, frozenset(allowed))
    boxes = allowables(point.graph, plan, allowed) if may_change else []

    rows = timeline.list_checkpoints(
        point.run.id, limit=AROUND, before=point.checkpoint.seq + AROUND // 2
    )
    summary = plan_summary(
        point.graph,
        plan,
        held=held,
        visited=point.frontier.visited,
        ran=_nodes_that_ran(rows),
    )
    draft = GoOnDraft(
        point=point,
        how=how,
        form=form,
        answers=answers,
        overlay=overlay,
        plan=plan,
        summary=summary,
        boxes=boxes,
        rows=rows,
        patch=patch or None,
        # A yes counts only for an effect that the plan offers to allow.
        allowed=sorted({*allowed} & {box.node for box in boxes}),
        problems=problems,
        fallen=fallen,
    )
    _read_words(draft, posted)
    _check_requirements(draft)
    return draft


def _form_of(
    point: Departure, posted: Mapping[str, str], moved_from: Departure | None
) -> tuple[PatchForm, list[Problem]]:
    """Return the form, and what of it was dropped because it was moved from another
    point, or because one value or all of them were reset.
    """
    if not posted:
        return fresh_form(point), []
    reset = posted.get("reset")
    if moved_from is None and not reset:
        return posted_form(point, posted), []

    typed_at = moved_from or point
    typed = posted_form(typed_at, posted)
    if reset == EVERYTHING:
        form = fresh_form(point)
        form.mode = typed.mode
        return form, []

    patch, problems = _sound_part(typed_at, typed)
    moved = moved_patch(typed_at, patch, point, mode=typed.mode, leave_out=reset or "")
    # A value that was reset takes its problem with it.
    remaining = [problem for problem in problems if problem.path != reset]
    return moved.form, [*remaining, *moved.fallen]


def _form_of_replay(point: Departure, typed: PatchForm) -> PatchForm:
    """Return a form without changes: a replay takes no patch.

    It carries what was typed, which comes back when another way is chosen.
    """
    carried = carried_form(point, typed)
    form = fresh_form(point)
    form.mode = carried.mode
    form.base = carried.base
    return form


def _checked_form(
    point: Departure, form: PatchForm, *, mend: str
) -> tuple[PatchForm, dict[str, Any], list[Problem]]:
    """Return the form, the valid part of its patch, and its problems.

    The problem at the path `mend` is mended first, if a fitting value is known.
    """
    patch, problems = _sound_part(point, form)
    for problem in problems:
        if problem.mend and problem.path == mend:
            mended = mended_form(form, point, problem)
            patch, problems = _sound_part(point, mended)
            return mended, patch, problems
    return form, patch, problems


def _sound_part(
    point: Departure, form: PatchForm
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the part of the patch that can be laid over the point, and every problem
    of the rest. No queries.
    """
    patch = dict(form.patch)
    problems = list(form.problems)
    # A refusal names one problem: what it names is taken out until the rest is valid.
    for _ in range(MOST_PROBLEMS):
        refusal = _refusal_of(point, patch)
        if refusal is None:
            return patch, problems
        problem = problem_of(point.graph, refusal)
        problems.append(problem)
        smaller = _without(patch, problem)
        # With a problem that cannot be taken out by name, no part is known to be valid.
        if smaller == patch:
            break
        patch = smaller
    return {}, problems


def _refusal_of(
    point: Departure, patch: Mapping[str, Any]
) -> InvalidValue | PayloadTooLarge | None:
    """Return why a patch cannot be laid over the point, or None if it can."""
    limit = conf().max_value_bytes
    try:
        patched(point.going_on, patch, graph=point.graph, limit=limit)
    except (InvalidValue, PayloadTooLarge) as error:
        return error
    return None


def problem_of(graph: Compiled, error: CountersignError) -> Problem:
    """Return a refusal as path, rule and value, with a fitting value if it names one."""
    facts = error.facts
    channel = str(facts.get("channel") or "")
    rule = facts.get("rule") or facts.get("reason") or error.message
    value = plain_text(facts["value"]) if "value" in facts else ""
    # The fitting value may be null, so it is the item of a tuple.
    mend = (facts["mend"],) if "mend" in facts else ()
    return Problem(
        _full_path(graph, channel, str(facts.get("path") or "")),
        str(rule),
        value=value,
        mend=mend,
        channel=channel,
    )


def _full_path(graph: Compiled, channel: str, path: str) -> str:
    """Return a path with the partition of its channel in front."""
    if channel not in graph.channels:
        return path
    partition = graph.channels[channel].partition
    if not partition or path.startswith(f"{partition}."):
        return path
    return f"{partition}.{path or channel}"


def _without(patch: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Return the patch without the changes to the channel of a problem, or to the first
    name in its path if it names no channel.
    """
    remaining: dict[str, Any] = {}
    for partition, change in patch.items():
        channel = problem.channel or _first_name(problem.path, partition)
        smaller = _change_without(change, channel)
        if smaller:
            remaining[partition] = smaller
    return remaining


def _first_name(path: str, partition: str) -> str:
    """Return `total` of "state.total.net" and of "state.total[0]"."""
    inner = path.removeprefix(f"{partition}.")
    return inner.partition(".")[0].partition("[")[0]


def _change_without(change: Any, channel: str) -> Any:
    """Return the change to a partition without one channel; None if it is no change."""
    if isinstance(change, dict):
        return {key: value for key, value in change.items() if key != channel}
    if isinstance(change, list):
        # A merge patch that was typed may have anything in this list.
        operations = [operation for operation in change if isinstance(operation, dict)]
        return [
            operation for operation in operations if _channel_of(operation) != [channel]
        ]
    return None


def _channel_of(operation: Mapping[str, Any]) -> list[str]:
    """Return the channel that an operation's path names, as a list of at most one."""
    return str(operation.get("path", "")).split("/")[1:2]


def _allowed_nodes(
    point: Departure, posted: Mapping[str, str], *, may_change: bool
) -> list[str]:
    """Return the nodes whose effects may happen again."""
    if not may_change:
        # A replay touches nothing outside: no effect happens again, so none stops it.
        return list(point.graph.nodes)
    return [name for name in point.graph.nodes if f"allow-{name}" in posted]


def _nodes_that_ran(rows: Sequence[Checkpoint]) -> set[str]:
    names: set[str] = set()
    for row in rows:
        names.update(entry["node"] for entry in row.nodes)
    return names


def _read_words(draft: GoOnDraft, posted: Mapping[str, str]) -> None:
    """Read the name and the reason, and add the problems of both and of the answers."""
    draft.find = posted.get("find", "").strip()[:LONGEST_WORD]
    # One character more than a key may have, so that a longer one is refused.
    draft.key = posted.get("key", "").strip()[: LONGEST_KEY + 1]
    draft.reason = posted.get("reason", "").strip()

    for choice in draft.answers.wrong:
        draft.problems.append(Problem(f"answers.{choice.key}", choice.error))
    if draft.how == Travel.FORK and draft.key:
        _check_key(draft)
    _check_reason(draft, is_sent=posted.get("do") in ("go", "paused"))


def _check_key(draft: GoOnDraft) -> None:
    try:
        checked_key(draft.key)
    except InvalidValue as error:
        draft.problems.append(Problem("name", error.message, draft.key))


def _check_reason(draft: GoOnDraft, *, is_sent: bool) -> None:
    """Add the problems of the reason; a rewind needs one once it `is_sent`."""
    if len(draft.reason) > LONGEST_REASON:
        text = f"A reason has at most {LONGEST_REASON:,} characters."
        draft.problems.append(Problem("reason", text))
    if draft.how == Travel.REWIND and not draft.reason and is_sent:
        text = "Say why: the reason is kept in the log."
        draft.problems.append(Problem("reason", text))


def _check_requirements(draft: GoOnDraft) -> None:
    """Add a problem if a secret is missing, or what a replay has to read of its run."""
    point = draft.point
    try:
        require_secrets(point.graph)
        if draft.how == Travel.REPLAY:
            require_ways(point.graph, point.run, point.checkpoint)
    except MissingSecrets as error:
        draft.problems.append(Problem("secrets", error.message))
    except WrongStatus as error:
        draft.problems.append(Problem("history", error.message))
