"""What somebody drafts on the page: patch, answers, yeses, name and reason, with the plan that follows from them.

It reads the point and what is around it, and writes nothing.
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
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import CountersignError, InvalidValue, MissingSecrets, PayloadTooLarge, WrongStatus
from orchestrator.engine.patch import patched
from orchestrator.runs.departure import Departure, held_tasks_at
from orchestrator.runs.keys import checked_key
from orchestrator.runs.needed_secrets import require_secrets
from orchestrator.runs.overlay import Overlay, lay_over
from orchestrator.runs.travel import LONGEST_REASON, plan_departure
from orchestrator.runs.travel_plan import Plan
from orchestrator.views.go_on.answer_choices import Answers, answer_choices
from orchestrator.views.go_on.channel_lines import ChannelLine, channel_lines
from orchestrator.views.go_on.moved_patch import moved_patch
from orchestrator.views.go_on.other_starts import AROUND, starts_around, version_changes
from orchestrator.views.go_on.patch_form import PatchForm, Problem, carried_form, fresh_form, mended_form, posted_form
from orchestrator.views.go_on.patch_lines import Hit, PatchLine, hits, patch_lines
from orchestrator.views.go_on.plan_lines import Allowable, PlanTold, allowables, plan_told
from orchestrator.views.go_on.value_texts import plain_text
from orchestrator.views.run_timeline import Column, name_of

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
"""Name, icon, and what it does, in a sentence and a half."""
MOST_PROBLEMS = 10
EVERYTHING = "*"
"""What is reset where no path is."""
LONGEST_WORD = 200
VIEWS = {"form": "Form", "json": "JSON", "ops": "Operations"}
"""The views of the patch, with their names."""


@dataclass
class GoOnDraft:
    """Everything that the template shows. `patch` is what is sound of what was typed, None where nothing changes."""

    point: Departure
    how: str
    form: PatchForm
    answers: Answers
    overlay: Overlay
    plan: Plan
    told: PlanTold
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
        """What the patch changes, value by value."""
        return patch_lines(self.point, self.patch or {})

    @cached_property
    def found(self) -> list[Hit]:
        """Where the word stands that is searched."""
        return hits(self.point.going_on, self.find)

    @property
    def channels(self) -> list[ChannelLine]:
        """The lines of the form, what changed on top."""
        return channel_lines(
            self.point,
            self.form,
            patched(self.point.going_on, self.patch or {}),
            faulty={problem.channel for problem in self.problems if problem.channel},
            hits={hit.channel for hit in self.found},
            searched=bool(self.find),
        )

    @property
    def naming_step(self) -> int:
        """The number of the last step: a replay has no patch."""
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
    def starts(self) -> list[tuple[Column, UUID]]:
        """The checkpoints around, as columns of the tape, with their ids."""
        return starts_around(self.run, self.rows, self.at)

    @cached_property
    def changes_of_version(self) -> dict[str, list[str]]:
        """What the graph that goes on has otherwise than the one of the checkpoint, by weight: `breaking` a run would
        stop at. Nothing where it is the same.
        """
        breaking, harmless = version_changes(self.point.judgement) if self.point.retyped else ([], [])
        return {"breaking": breaking, "harmless": harmless}

    @property
    def other_version(self) -> str:
        """The version that goes on in the place of the checkpoint's."""
        return self.point.graph.version if self.point.retyped else ""

    @property
    def migrations(self) -> str:
        """The migrations that make the state one of the version that goes on."""
        return ", ".join(step.name for step in self.point.steps)

    @property
    def fault(self) -> SealFault | None:
        return fault_of(self.at, protection_of(self.run))

    @property
    def ways(self) -> dict[str, tuple[str, str, str, str]]:
        return {str(way): told for way, told in WAYS.items()}

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
        """The channels that need signatures again, with the node whose gate asks for them."""
        return sorted(self.overlay.change.guarded.items())

    @property
    def button(self) -> str:
        """What the button says that does it: the truth."""
        wrong = len(self.problems)
        verb = self.way[0].lower()
        if wrong:
            return f"Fix {wrong} problem{'' if wrong == 1 else 's'} to {verb}"
        if self.how == Travel.REWIND:
            return f"Rewind to {self.at.seq}"
        if self.how == Travel.REPLAY:
            return "Replay"
        return "Fork and ask for signatures" if self.guarded else "Fork and run"

    def refuse(self, error: CountersignError) -> None:
        """Show why it was not done."""
        if error.facts.get("path") == "key":
            self.problems.append(Problem("name", error.message, self.key))
        else:
            self.message = error.message

    def rewound_before(self, by: Any, line: int) -> bool:
        """Whether the run went back to here already, from the line that was seen, by this person: the page was posted
        twice. One query, none where the run is on the line that was seen.
        """
        if self.run.line == line:
            return False
        following = RunLine.objects.filter(run=self.run.id, number=line + 1, departure=self.at.id, by=by)
        return following.exists()


def draft_of(
    point: Departure, user: Any, posted: Mapping[str, str], *, how: str, moved_from: Departure | None = None
) -> GoOnDraft:
    """The draft as it was posted, at this point or at the one that it was moved from; without a post, one in which
    nothing is changed. Three queries beside the checkpoint's own, whatever the run's length; two more where the point
    asked people, three more where something was forked from its runs, and one an origin.
    """
    how = how if how in {*WAYS} else str(Travel.FORK)
    changes = how != Travel.REPLAY
    form, fallen = _form_of(point, posted, moved_from)
    if not changes:
        # A replay takes no patch. What was typed comes back with another way.
        carried = carried_form(point, form)
        form = fresh_form(point)
        form.mode, form.base = carried.mode, carried.base
        fallen = []
    patch, problems = _sound_part(point, form)
    if (mended := _mended(point, form, problems, posted.get("mend", ""))) is not None:
        form = mended
        patch, problems = _sound_part(point, form)
    overlay = lay_over(point, patch or None, by=user.get_username(), asks=changes)
    asked = held_tasks_at(point) if changes else []
    answers = answer_choices(point, asked, user, posted if changes else None)
    # A replay has no outside: nothing of it happens again, so nothing stops it.
    names = [name for name in point.graph.nodes if not changes or f"allow-{name}" in posted]
    plan = plan_departure(point, overlay, asked, how, frozenset(names))
    rows = timeline.list_checkpoints(point.run.id, limit=AROUND, before=point.checkpoint.seq + AROUND // 2)
    ran = {entry["node"] for row in rows for entry in row.nodes}
    boxes = allowables(point.graph, plan, names) if changes else []
    draft = GoOnDraft(
        point, how, form, answers, overlay, plan,
        plan_told(point.graph, plan, asked=asked, visited=point.frontier.visited, ran=ran),
        boxes, rows, patch or None, sorted({*names} & {box.node for box in boxes}), problems, fallen=fallen,
    )  # fmt: skip
    _read_words(draft, posted)
    try:
        require_secrets(point.graph)
        if how == Travel.REPLAY:
            require_ways(point.graph, point.run, point.checkpoint)
    except (MissingSecrets, WrongStatus) as error:
        place = "secrets" if isinstance(error, MissingSecrets) else "history"
        draft.problems.append(Problem(place, error.message))
    return draft


def _form_of(
    point: Departure, posted: Mapping[str, str], moved_from: Departure | None
) -> tuple[PatchForm, list[Problem]]:
    """The form, and what of it fell away on the way from another point, or where one value or all are reset."""
    if not posted:
        return fresh_form(point), []
    if moved_from is None and not posted.get("reset"):
        return posted_form(point, posted), []
    moved_from = moved_from or point
    typed = posted_form(moved_from, posted)
    if posted.get("reset") == EVERYTHING:
        form = fresh_form(point)
        form.mode = typed.mode
        return form, []
    patch, problems = _sound_part(moved_from, typed)
    moved = moved_patch(moved_from, patch, point, mode=typed.mode, leave_out=posted.get("reset", ""))
    return moved.form, [*(one for one in problems if one.path != posted.get("reset")), *moved.fallen]


def _sound_part(point: Departure, form: PatchForm) -> tuple[dict[str, Any], list[Problem]]:
    """What of the patch can be laid over the point, and everything that is wrong with the rest. No queries."""
    left, found = dict(form.patch), list(form.problems)
    for _ in range(MOST_PROBLEMS):
        try:
            patched(point.going_on, left, graph=point.graph, limit=conf().max_value_bytes)
        except (InvalidValue, PayloadTooLarge) as error:
            problem = problem_of(point.graph, error)
            found.append(problem)
            less = _without(left, problem)
            if less == left:
                return {}, found
            left = less
        else:
            return left, found
    return {}, found


def problem_of(graph: Compiled, error: CountersignError) -> Problem:
    """A refusal as path, rule and value; with what would fit, where it says so."""
    facts = error.facts
    channel, path = str(facts.get("channel") or ""), str(facts.get("path") or "")
    part = graph.channels[channel].partition if channel in graph.channels else ""
    if part and not path.startswith(f"{part}."):
        path = f"{part}.{path or channel}"
    value = plain_text(facts["value"]) if "value" in facts else ""
    mend = (facts["mend"],) if "mend" in facts else ()
    return Problem(path, str(facts.get("rule") or facts.get("reason") or error.message), value, mend, channel)


def _without(patch: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """The patch without what changes the channel of a problem, or, where none is named, without its partition."""
    found: dict[str, Any] = {}
    for part, change in patch.items():
        name = problem.channel or problem.path.removeprefix(f"{part}.").partition(".")[0].partition("[")[0]
        if isinstance(change, list):
            known = [op for op in change if isinstance(op, dict)]
            left: Any = [op for op in known if str(op.get("path", "")).split("/")[1:2] != [name]]
        elif isinstance(change, dict):
            left = {key: value for key, value in change.items() if key != name}
        else:
            continue
        if left:
            found[part] = left
    return found


def _mended(point: Departure, form: PatchForm, problems: Sequence[Problem], wanted: str) -> PatchForm | None:
    """The form with the value in it that would fit, where somebody pressed for it."""
    problem = next((one for one in problems if one.mend and one.path == wanted), None)
    return mended_form(form, point, problem) if problem else None


def _read_words(draft: GoOnDraft, posted: Mapping[str, str]) -> None:
    """Name and reason, and what is wrong with them and with the answers."""
    draft.find = posted.get("find", "").strip()[:LONGEST_WORD]
    draft.key, draft.reason = posted.get("key", "").strip()[: LONGEST_KEY + 1], posted.get("reason", "").strip()
    for one in draft.answers.wrong:
        draft.problems.append(Problem(f"answers.{one.key}", one.error))
    if draft.how == Travel.FORK and draft.key:
        try:
            checked_key(draft.key)
        except InvalidValue as error:
            draft.problems.append(Problem("name", error.message, draft.key))
    if len(draft.reason) > LONGEST_REASON:
        draft.problems.append(Problem("reason", f"A reason has at most {LONGEST_REASON:,} characters."))
    if draft.how == Travel.REWIND and not draft.reason and posted.get("do") in ("go", "paused"):
        draft.problems.append(Problem("reason", "Say why: the reason is kept in the log."))
