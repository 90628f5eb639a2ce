"""What lists show of a run: its label and indexed facts, made from its input when it starts, so that nobody needs to
open a payload to filter by them; and what its node in hand reports.
"""

from typing import Any

from checkpoints import lines
from checkpoints.core.visible_text import LONGEST_FACT, LONGEST_LABEL
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import UNREADABLE

NOT_KEPT = "what was said of it could not be encrypted, so it was not kept"


class _Blank(dict[str, Any]):
    """A template that names a field which the input lacks still gives a label."""

    def __missing__(self, key: str) -> str:
        return "?"


def run_label(compiled: Compiled, staged: Any, *, key: str) -> str:
    """The graph's label with the input's fields filled in ("Claim {claim_id}"); else the graph's name and the key, in
    an encrypted graph too: a label is a readable column, and the input is not for everybody who can read it.
    """
    template = compiled.graph.label
    if template is None or compiled.graph.encrypted:
        return f"{compiled.name} · {key}"[:LONGEST_LABEL]
    try:
        return template.format_map(_Blank(staged, key=key))[:LONGEST_LABEL]
    except (ValueError, AttributeError, LookupError):
        return f"{compiled.name} · {key}"[:LONGEST_LABEL]


def run_facts(compiled: Compiled, staged: Any) -> dict[str, str]:
    """The graph's facts that are declared `indexed` and read the input: {label: text}."""
    found = {}
    for fact in compiled.graph.facts:
        value = _at(staged, fact.path.removeprefix("input."))
        if fact.indexed and fact.path.startswith("input.") and value is not None:
            found[fact.label] = str(value)[:LONGEST_FACT]
    return found


def progress_of(run: Run) -> dict[str, Any] | None:
    """What the node in hand reports: {task, done, total, note}; None where it reports nothing, or none can read it."""
    facts = read_or_reason(run, "progress")
    return facts if isinstance(facts, dict) else None


def display_error(run: Run) -> dict[str, Any] | None:
    """Why a run stopped, {code, message, ...}, or that it cannot be opened; None where it did not stop."""
    facts = read_or_reason(run, "error")
    if isinstance(facts, dict):
        return facts
    return {"code": run.error_code, "message": facts or NOT_KEPT} if run.error_code else None


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def needs_yes_of(run: Run) -> list[str] | None:
    """The nodes of a run's line that do not start without a yes; None where the line does not verify."""
    try:
        row = lines.line_row(run, run.line)
    except UNREADABLE:
        return None
    return [node for node in row.stops if node != lines.NOT_STARTED] if row else []
