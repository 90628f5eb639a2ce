"""Why a run stopped, in words, with the way on, or the ways: built from the run's row, and from the versions here."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from approvals.gates.lost_version import refusal_to_sign
from checkpoints.core.status import STOPPED, Status
from checkpoints.models import Checkpoint, Run
from checkpoints.versions import graph_for
from orchestrator.engine.differences import BREAKING, Difference
from orchestrator.runs.labels import display_error
from orchestrator.runs.unknown_outcomes import carried_keys
from orchestrator.runs.version_choice import is_stranded, ways_out
from orchestrator.views.run_damage import Damage, damage_of

MOST_UNKNOWN = 20
"""Tasks with an unknown outcome that the panel lists; the page that settles them has all."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The panel above the stage. `action` is resume, settle or nothing; `why_not` stands where the reader may not.
    `label`: what resuming means, `fork`: the checkpoint from which another version takes over. `breaking` and
    `harmless`: what differs between two versions, each in words. `unknown`: tasks that may have acted, each with the
    key of its call; `more`: whether there are others.
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
    damage: Damage | None = None
    breaking: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    more: bool = False


def problem_of(run: Run, *, asks: bool, may_steer: bool, may_settle: bool) -> Problem | None:
    """The panel of a stopped run, and of one that `asks` people something while its version is gone; None for one that
    goes on or ended.
    """
    if run.status == Status.PAUSED and asks and not run.imported:
        return _left_behind(run, may_steer)
    if run.status not in STOPPED:
        return None
    error = display_error(run) or {}
    if run.imported:
        return Problem(title=f"It {run.status} where it comes from", message=_sentence(error))
    if run.status == Status.UNKNOWN:
        return _unknown(run, error, may_settle)
    lacks_key = run.status == Status.TAMPERED and run.error_code == "wrong_key"
    found = replace(_RESUMABLE["wrong_key" if lacks_key else run.status], message=_sentence(error))
    if run.status == Status.FAILED:
        cure, trace = str(error.get("cure", "")), str(error.get("traceback", ""))
        found = replace(found, title=_failed(run, error), todo=cure, traceback=trace)
    if run.status == Status.INCOMPATIBLE:
        return _incompatible(run, found, error, may_steer)
    if run.status == Status.TAMPERED and not lacks_key:
        return _tampered(run, found, may_steer)
    why_not = "" if may_steer else "Somebody with the right to steer runs can resume it."
    return replace(found, action="resume" if may_steer else "", why_not=why_not)


def _tampered(run: Run, found: Problem, may: bool) -> Problem:
    """Name the first checkpoint that does not verify. Resuming is offered only once the record verifies again."""
    damage = damage_of(run)
    if not damage.broken:
        return replace(
            found,
            title="The record verifies again",
            message="",
            safe="The run is stopped; nothing was applied.",
            todo="All of it is verified once more before it goes on.",
            action="resume" if may else "",
            why_not="" if may else "Somebody with the right to steer runs can resume it.",
        )
    message = damage.intact_in_words if damage.seq is not None else found.message
    fork = damage.intact.id if damage.intact is not None and may else None
    return replace(
        found, title=damage.title, message=message, fork=fork, fork_label=_fork_label(damage.intact), damage=damage
    )


def _fork_label(intact: Checkpoint | None) -> str:
    return "" if intact is None else f"Fork from {intact.seq:,}"


def _left_behind(run: Run, may: bool) -> Problem | None:
    """Of a paused run whose version is gone, where the one that is here would read otherwise what it asks about. No
    query where its version is here.
    """
    if not is_stranded(run) or graph_for(run) is not None:
        return None
    ways, refusal = ways_out(run, forks=False), refusal_to_sign(run)
    changes = [Difference.from_json(change) for change in refusal.facts["changes"]] if refusal else []
    can = "Somebody with the right to steer runs can bring it onto the version that is here." if ways.resume else ""
    return Problem(
        f"Version {run.version} is not here any more",
        safe=_NOBODY_SIGNS if refusal else "What it asks can be approved or rejected as it is, and edited by nobody.",
        todo="" if ways.resume else _RAISE.format(run.version) if ways.same_version else _DEPLOY,
        action="resume" if ways.resume and may else "",
        label=ways.resume or "Resume",
        confirm="It pauses again, and people are asked on. What was signed counts, or comes back where what it was "
        "bound to moved.",
        why_not="" if may else can,
        breaking=tuple(change.words for change in changes if change.weight == BREAKING),
        harmless=tuple(change.words for change in changes if change.weight != BREAKING),
    )


def _incompatible(run: Run, found: Problem, error: dict[str, Any], may: bool) -> Problem:
    """What differs, and the ways out that exist now; for who may not steer, in a sentence."""
    changes = [Difference.from_json(one) for one in error.get("changes", ())]
    breaking = tuple(one.words for one in changes if one.weight == BREAKING)
    harmless = tuple(one.words for one in changes if one.weight != BREAKING)
    ways = ways_out(run, forks=may)
    because = str(error.get("because") or "")
    can = "choose how it goes on" if ways.resume else "see whether it can be forked"
    return replace(
        found,
        message=f"{because[:1].upper()}{because[1:]}." if because else "" if changes else found.message,
        todo="" if ways.resume else _RAISE.format(run.version) if ways.same_version else found.todo,
        action="resume" if ways.resume and may else "",
        label=ways.resume or "Resume",
        fork=ways.fork if may else None,
        why_not="" if may else f"Somebody with the right to steer runs can {can}.",
        breaking=breaking,
        harmless=harmless,
    )


def _failed(run: Run, error: dict[str, Any]) -> str:
    if error.get("code") == "database_restored":
        return "The database was put back"
    node, attempt = str(error.get("node") or run.at_node), error.get("attempt", 1)
    tries = f" after {attempt} attempts" if isinstance(attempt, int) and attempt > 1 else ""
    return f"{node} failed{tries}" if node else "The run failed"


def _unknown(run: Run, error: dict[str, Any], may: bool) -> Problem:
    node = str(error.get("node") or run.at_node)
    open_tasks = carried_keys(run, limit=MOST_UNKNOWN + 1)
    return Problem(
        title=f"Did {node} happen?",
        message="It was written down that it would run, and nobody wrote down that it had.",
        safe="Nothing runs until a person says which is true.",
        todo=str(error.get("message", "")),
        action="settle" if may else "",
        why_not="" if may else "Somebody with the right to settle outcomes must say what happened.",
        unknown=tuple((row.task, key) for row, key in open_tasks[:MOST_UNKNOWN]),
        more=len(open_tasks) > MOST_UNKNOWN,
        traceback=str(error.get("traceback", "")),
    )


def _sentence(error: dict[str, Any]) -> str:
    kind, message = error.get("type", ""), str(error.get("message", "")).strip() or "It left no message."
    named = message if not kind or error.get("code") != "node_failed" else f"{kind}: {message}"
    return named if named.endswith((".", "!", "?")) else f"{named}."


_NOBODY_SIGNS = "What it asks can be signed by nobody, for the version that is here could not go on with it then."
_DEPLOY = "Deploy the version that it began with beside the new one, or a migration to the new one; then resume it."
_RAISE = (
    "Raise the version of the graph that is here, for it is called {} too. Then deploy it with a migration, or beside "
    "the one that the run began with, and resume the run."
)
_RESUMABLE: dict[str, Problem] = {
    Status.FAILED: Problem(
        "The run failed",
        safe="What was saved before it is safe; nothing after it ran.",
        confirm="What finished is kept and not repeated. Only what has no result runs again.",
    ),
    Status.INCOMPATIBLE: Problem(
        "This run cannot go on with the version that is here",
        safe="Nothing of it was changed, and its history stays readable.",
        todo=_DEPLOY,
        confirm="It goes on where a worker has its version, or one that takes it. Its log says which.",
    ),
    Status.TAMPERED: Problem(
        "A record does not match what was written",
        safe="The run is stopped; nothing was applied. Its history stays readable.",
        todo="Restore the record from a backup; this page then offers to resume the run. Find out who could write to "
        "the database: manage.py verify_runs names every place that is not as it was written.",
        confirm="It goes on only if every record of it verifies.",
    ),
    "wrong_key": Problem(
        "A key is missing",
        safe="The run is stopped; nothing was changed.",
        todo="Put the key back into the settings, then resume the run: it is verified first.",
        confirm="It goes on only if every record of it verifies.",
    ),
}
"""By status; `wrong_key` is a tampered run that lacks nothing but a key."""
