"""Why a run stopped, in words, with the one way on. Pure: built from the run's row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator.runs.labels import display_error


@dataclass(frozen=True, slots=True)
class Problem:
    """The panel above the stage. `action` is resume, settle or nothing; `why_not` stands where the reader may not."""

    title: str
    message: str
    safe: str = ""
    todo: str = ""
    action: str = ""
    why_not: str = ""
    confirm: str = ""
    traceback: str = ""


def problem_of(run: Run, *, may_steer: bool, may_settle: bool) -> Problem | None:
    """The panel of a stopped run; None for one that goes on or ended."""
    build = _BUILDERS.get(run.status)
    if build is None:
        return None
    return build(run, display_error(run) or {}, may_settle if run.status == Status.UNKNOWN else may_steer)


def _failed(run: Run, error: dict[str, Any], may: bool) -> Problem:
    node = str(error.get("node") or run.at_node)
    attempt = error.get("attempt", 1)
    tries = f" after {attempt} attempts" if isinstance(attempt, int) and attempt > 1 else ""
    return Problem(
        title=f"{node} failed{tries}" if node else "The run failed",
        message=_sentence(error),
        safe="What was saved before it is safe; nothing after it ran.",
        todo=str(error.get("cure", "")),
        action="resume" if may else "",
        why_not="" if may else "Somebody with the right to steer runs can resume it.",
        confirm="What finished is kept and not repeated. Only what has no result runs again.",
        traceback=str(error.get("traceback", "")),
    )


def _unknown(run: Run, error: dict[str, Any], may: bool) -> Problem:
    node = str(error.get("node") or run.at_node)
    return Problem(
        title=f"Did {node} happen?",
        message="It was written down that it would run, and nobody wrote down that it had.",
        safe="Nothing runs until a person says which is true.",
        todo=str(error.get("message", "")),
        action="settle" if may else "",
        why_not="" if may else "Somebody with the right to settle outcomes must say what happened.",
        traceback=str(error.get("traceback", "")),
    )


def _incompatible(run: Run, error: dict[str, Any], may: bool) -> Problem:
    return Problem(
        title="This run cannot go on with the version that is here",
        message=_sentence(error),
        safe="Its history stays readable.",
        todo="Deploy the version that it was started with beside the new one, then resume it.",
        action="resume" if may else "",
        why_not="" if may else "Somebody with the right to steer runs can resume it.",
        confirm="It goes on only where a worker has the version that it was started with.",
    )


def _tampered(run: Run, error: dict[str, Any], may: bool) -> Problem:
    if run.error_code == "wrong_key":
        return Problem(
            title="A key is missing",
            message=_sentence(error),
            safe="The run stands still, and nothing was changed.",
            todo="Put the key back into the settings, then resume the run: it is verified first.",
            action="resume" if may else "",
            why_not="" if may else "Somebody with the right to steer runs can resume it.",
            confirm="It goes on only if every record of it verifies.",
        )
    return Problem(
        title="A record does not match what was written",
        message=_sentence(error),
        safe="The run stands still, and nothing was applied. Its history stays readable.",
        todo="Restore the record from a backup, then resume the run: it is verified first. Find out who could write to "
        "the database; manage.py verify_runs names every place that is not as it was written.",
        action="resume" if may else "",
        why_not="" if may else "Somebody with the right to steer runs can resume it.",
        confirm="It goes on only if every record of it verifies.",
    )


def _sentence(error: dict[str, Any]) -> str:
    kind, message = error.get("type", ""), str(error.get("message", "")).strip() or "It left no message."
    named = message if not kind or error.get("code") != "node_failed" else f"{kind}: {message}"
    return named if named.endswith((".", "!", "?")) else f"{named}."


_BUILDERS: dict[str, Callable[[Run, dict[str, Any], bool], Problem]] = {
    Status.FAILED: _failed,
    Status.UNKNOWN: _unknown,
    Status.INCOMPATIBLE: _incompatible,
    Status.TAMPERED: _tampered,
}
