"""The readable columns that lists show of a run: its label and indexed facts, made from
its input when it starts, so that filtering by them needs no payload to be opened; and
its progress, its error and the nodes that need a yes.
"""

from typing import Any

from checkpoints import lines
from checkpoints.core.visible_text import LONGEST_FACT, LONGEST_LABEL
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.discovery import is_encrypted
from orchestrator.engine.errors import UNREADABLE
from orchestrator.engine.graphs.compile import Compiled

NOT_KEPT = "what was said of it could not be encrypted, so it was not kept"


class _Blank(dict[str, Any]):
    """The fields of a label. One that the input lacks is shown as a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def run_label(compiled: Compiled, staged: Any, *, key: str) -> str:
    """Return the graph's label with the input's fields filled in ("Claim {claim_id}");
    otherwise the graph's name and the key. An encrypted graph has the latter: a label
    is a readable column, and not everybody who can read it may see the input.
    """
    usual = f"{compiled.name} · {key}"[:LONGEST_LABEL]
    template = compiled.graph.label
    if template is None or is_encrypted(compiled):
        return usual
    try:
        return template.format_map(_Blank(staged, key=key))[:LONGEST_LABEL]
    # A template may use any syntax of `format`, and an input may have any shape.
    except (ValueError, AttributeError, LookupError):
        return usual


def run_facts(compiled: Compiled, staged: Any) -> dict[str, str]:
    """Return the graph's facts that are declared `indexed` and read the input, as
    {label: text}.
    """
    facts: dict[str, str] = {}
    for fact in compiled.graph.facts:
        # When a run starts, there is only its input to read facts from.
        if not fact.indexed or not fact.path.startswith("input."):
            continue
        value = _value_at(staged, fact.path.removeprefix("input."))
        if value is not None:
            facts[fact.label] = str(value)[:LONGEST_FACT]
    return facts


def _value_at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def progress_of(run: Run) -> dict[str, Any] | None:
    """Return what the running node reports, {task, done, total, note}; None if it
    reports nothing, or its report cannot be read.
    """
    facts = read_or_reason(run, "progress")
    return facts if isinstance(facts, dict) else None


def display_error(run: Run) -> dict[str, Any] | None:
    """Return why a run stopped, {code, message, ...}, or that the reason cannot be
    read; None for a run that did not stop.
    """
    facts = read_or_reason(run, "error")
    if isinstance(facts, dict):
        return facts
    if not run.error_code:
        return None
    return {"code": run.error_code, "message": facts or NOT_KEPT}


def needs_yes_of(run: Run) -> list[str] | None:
    """Return the nodes of a run's line that do not start without a yes; None if the
    line does not verify.
    """
    try:
        row = lines.line_row(run, run.line)
    except UNREADABLE:
        return None
    if row is None:
        return []
    return [node for node in row.stops if node != lines.NOT_STARTED]
