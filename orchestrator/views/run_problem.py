"""The panel about a stopped run: the reason in words, and the ways on. Built from the
run's row and the versions that are registered here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from approvals.gates.lost_version import refusal_to_sign
from checkpoints.core.status import STOPPED, Status
from checkpoints.models import Checkpoint, Run
from checkpoints.versions import graph_for
from orchestrator.engine.versions.differences import BREAKING, Difference
from orchestrator.run_access.labels import display_error
from orchestrator.runs.unknown_outcomes import carried_keys
from orchestrator.runs.version_choice import ContinuationWays, is_stranded, ways_out
from orchestrator.views.run_damage import RunDamage, damage_of

MOST_UNKNOWN = 20
"""The most tasks with an unknown outcome that the panel lists; the page for settling
them lists all.
"""
ASK_A_STEERER = "Somebody with the right to steer runs can resume it."


@dataclass(frozen=True, slots=True)
class RunProblem:
    """The panel above the stage.

    `action` is resume, settle or nothing; `why_not` is shown to a reader who may not do
    it. `label`: the text of the button that resumes; `fork`: the checkpoint from which
    another version takes over. `breaking` and `harmless`: the differences between two
    versions, each in words. `unknown`: tasks that may have acted, each with the key of
    its call; `has_more_unknown`: true if there are others.
    """

    title: str
    message: str = ""
    safe: str = ""
    todo: str = ""
    action: str = ""
    why_not: str = ""
    confirm: str = ""
    traceback: str = ""
    label: str = "Resume"
    fork: UUID | None = None
    fork_label: str = "Fork it"
    damage: RunDamage | None = None
    breaking: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    has_more_unknown: bool = False


def problem_of(
    run: Run,
    *,
    asks: bool,
    may_steer: bool,
    may_settle: bool,
) -> RunProblem | None:
    """Return the panel of a stopped run, or of a paused one that `asks` people
    something although its version is gone; None for any other.
    """
    if run.status == Status.PAUSED and asks and not run.imported:
        return _left_behind(run, may_steer)
    if run.status not in STOPPED:
        return None
    error = display_error(run) or {}
    if run.imported:
        return RunProblem(_STOPPED_ELSEWHERE[run.status], message=_sentence(error))
    return _problem_here(run, error, may_steer=may_steer, may_settle=may_settle)


def _problem_here(
    run: Run,
    error: dict[str, Any],
    *,
    may_steer: bool,
    may_settle: bool,
) -> RunProblem:
    """Return the panel of a run that stopped in this database."""
    if run.status == Status.UNKNOWN:
        return _unknown(run, error, may_settle)

    # Without the key nothing can be verified, so nothing is known to be tampered with.
    lacks_key = run.status == Status.TAMPERED and run.error_code == "wrong_key"
    template = _RESUMABLE["wrong_key" if lacks_key else run.status]
    problem = replace(template, message=_sentence(error))
    if run.status == Status.INCOMPATIBLE:
        return _incompatible(run, problem, error, may_steer)
    if run.status == Status.TAMPERED and not lacks_key:
        return _tampered(run, problem, may_steer)
    if run.status == Status.FAILED:
        problem = replace(
            problem,
            title=_failed(run, error),
            todo=str(error.get("cure", "")),
            traceback=str(error.get("traceback", "")),
        )
    return _resumable(problem, may_steer)


def _resumable(problem: RunProblem, may_steer: bool) -> RunProblem:
    if may_steer:
        return replace(problem, action="resume")
    return replace(problem, why_not=ASK_A_STEERER)


def _tampered(run: Run, problem: RunProblem, may_steer: bool) -> RunProblem:
    """Name the first checkpoint that does not verify. Resuming is offered only once the
    record verifies again.
    """
    damage = damage_of(run)
    if not damage.broken:
        verified = replace(
            problem,
            title="The record verifies again",
            message="",
            safe="The run is stopped; nothing was applied.",
            todo="All of it is verified once more before it goes on.",
        )
        return _resumable(verified, may_steer)

    if damage.seq is not None:
        problem = replace(problem, message=damage.intact_in_words)
    if damage.intact is not None and may_steer:
        problem = replace(problem, fork=damage.intact.id)
    return replace(
        problem,
        title=damage.title,
        fork_label=_fork_label(damage.intact),
        damage=damage,
    )


def _fork_label(intact: Checkpoint | None) -> str:
    if intact is None:
        return ""
    return f"Fork from {intact.seq:,}"


def _left_behind(run: Run, may_steer: bool) -> RunProblem | None:
    """Return the panel of a paused run whose version is gone, if the registered one
    would read its open questions differently. No query if its version is here.
    """
    if not is_stranded(run) or graph_for(run) is not None:
        return None
    ways = ways_out(run, forks=False)
    refusal = refusal_to_sign(run)
    changes: Iterable[Any] = ()
    safe = _SIGNED_AS_IT_IS
    if refusal:
        changes = refusal.facts["changes"]
        safe = _NOBODY_SIGNS
    breaking, harmless = _by_weight(changes)

    # The way out is offered to those who may take it; the others read whom to ask.
    action = ""
    why_not = ""
    if ways.resume and may_steer:
        action = "resume"
    elif ways.resume:
        why_not = _ASK_TO_BRING_OVER
    return RunProblem(
        f"Version {run.version} is not here any more",
        safe=safe,
        todo=_todo(run, ways, otherwise=_DEPLOY),
        action=action,
        label=ways.resume or "Resume",
        confirm=_CONFIRM_BRINGING_OVER,
        why_not=why_not,
        breaking=breaking,
        harmless=harmless,
    )


def _incompatible(
    run: Run,
    problem: RunProblem,
    error: dict[str, Any],
    may_steer: bool,
) -> RunProblem:
    """Add the differences and the ways out that exist now; for a reader who may not
    steer, in a sentence.
    """
    changes = error.get("changes", ())
    breaking, harmless = _by_weight(changes)
    # Trying a fork runs the author's migrations, so it is done for those who may make
    # it.
    ways = ways_out(run, forks=may_steer)
    problem = replace(
        problem,
        message=_why_incompatible(problem, error),
        todo=_todo(run, ways, otherwise=problem.todo),
        label=ways.resume or "Resume",
        breaking=breaking,
        harmless=harmless,
    )
    if may_steer:
        action = "resume" if ways.resume else ""
        return replace(problem, action=action, fork=ways.fork)
    if ways.resume:
        return replace(problem, why_not=_ASK_TO_CHOOSE)
    return replace(problem, why_not=_ASK_FOR_A_FORK)


def _why_incompatible(problem: RunProblem, error: dict[str, Any]) -> str:
    because = str(error.get("because") or "")
    if because:
        return f"{because[:1].upper()}{because[1:]}."
    # The list of differences shows the reason.
    if error.get("changes", ()):
        return ""
    return problem.message


def _by_weight(changes: Iterable[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the breaking differences and the others, in words."""
    breaking: list[str] = []
    harmless: list[str] = []
    for change in changes:
        difference = Difference.from_json(change)
        words = breaking if difference.weight == BREAKING else harmless
        words.append(difference.words)
    return tuple(breaking), tuple(harmless)


def _todo(run: Run, ways: ContinuationWays, *, otherwise: str) -> str:
    """Return what has to be deployed before a run can go on; empty if it can now."""
    if ways.resume:
        return ""
    if ways.same_version:
        return _RAISE.format(run.version)
    return otherwise


def _failed(run: Run, error: dict[str, Any]) -> str:
    """Return the title of a failed run: its node, and the attempts if several."""
    if error.get("code") == "database_restored":
        return "The database was put back"
    node = str(error.get("node") or run.at_node)
    if not node:
        return "The run failed"
    attempt = error.get("attempt", 1)
    if isinstance(attempt, int) and attempt > 1:
        return f"{node} failed after {attempt} attempts"
    return f"{node} failed"


def _unknown(run: Run, error: dict[str, Any], may_settle: bool) -> RunProblem:
    node = str(error.get("node") or run.at_node)
    # One more than are listed shows whether there are others.
    open_tasks = carried_keys(run, limit=MOST_UNKNOWN + 1)
    shown_tasks = open_tasks[:MOST_UNKNOWN]
    problem = RunProblem(
        title=f"Did {node} happen?",
        message=_NOT_WRITTEN_DOWN,
        safe="Nothing runs until a person says which is true.",
        todo=str(error.get("message", "")),
        unknown=tuple((row.task, key) for row, key in shown_tasks),
        has_more_unknown=len(open_tasks) > MOST_UNKNOWN,
        traceback=str(error.get("traceback", "")),
    )
    if may_settle:
        return replace(problem, action="settle")
    return replace(problem, why_not=_ASK_A_SETTLER)


def _sentence(error: dict[str, Any]) -> str:
    """Return the message of an error as a sentence, after its type if a node raised it."""
    # Only the exceptions of a node have a type that its author knows.
    kind = error.get("type", "")
    message = str(error.get("message", "")).strip() or "It left no message."
    if kind and error.get("code") == "node_failed":
        message = f"{kind}: {message}"
    if message.endswith((".", "!", "?")):
        return message
    return f"{message}."


_STOPPED_ELSEWHERE: dict[str, str] = {
    Status.FAILED: "It failed where it comes from",
    Status.UNKNOWN: "Its outcome is unknown where it comes from",
    Status.INCOMPATIBLE: "It is incompatible where it comes from",
    # An import pauses a run that was tampered with; this status is set here.
    Status.TAMPERED: "A record does not match what was written",
}
"""The titles for an imported run, by status."""
_SIGNED_AS_IT_IS = (
    "What it asks can be approved or rejected as it is. Nobody can edit it."
)
_ASK_TO_BRING_OVER = (
    "Somebody with the right to steer runs can bring it onto the version that is here."
)
_ASK_TO_CHOOSE = "Somebody with the right to steer runs can choose how it goes on."
_ASK_FOR_A_FORK = (
    "Somebody with the right to steer runs can see whether it can be forked."
)
_CONFIRM_BRINGING_OVER = (
    "It pauses again, and people continue to sign. What was signed counts, or comes back "
    "if what it was bound to has changed."
)
_NOT_WRITTEN_DOWN = "It was recorded that it would run, but not that it had."
_ASK_A_SETTLER = "Somebody with the right to settle outcomes must say what happened."
_NOBODY_SIGNS = (
    "Nobody can sign what it asks, because the version that is here could not go on with "
    "it then."
)
_DEPLOY = (
    "Deploy the version that it began with beside the new one, or a migration to the "
    "new one; then resume it."
)
_RAISE = (
    "Raise the version of the graph that is here, for it is called {} too. Then deploy "
    "it with a migration, or beside the one that the run began with, and resume the "
    "run."
)
_RESUMABLE: dict[str, RunProblem] = {
    Status.FAILED: RunProblem(
        "The run failed",
        safe="What was saved before it is safe; nothing after it ran.",
        confirm="What finished is kept and not repeated. "
        "Only what has no result runs again.",
    ),
    Status.INCOMPATIBLE: RunProblem(
        "This run cannot go on with the version that is here",
        safe="Nothing of it was changed, and its history stays readable.",
        todo=_DEPLOY,
        confirm="It goes on where a worker has its version, or one that takes it. "
        "Its log says which.",
    ),
    Status.TAMPERED: RunProblem(
        "A record does not match what was written",
        safe="The run is stopped; nothing was applied. Its history stays readable.",
        todo="Restore the record from a backup; this page then offers to resume the "
        "run. Find out who could write to the database: manage.py verify_runs names "
        "every place that is not as it was written.",
        confirm="It goes on only if every record of it verifies.",
    ),
    "wrong_key": RunProblem(
        "A key is missing",
        safe="The run is stopped; nothing was changed.",
        todo="Put the key back into the settings, then resume the run: "
        "it is verified first.",
        confirm="It goes on only if every record of it verifies.",
    ),
}
"""By status; `wrong_key` is a tampered run that only lacks a key."""
