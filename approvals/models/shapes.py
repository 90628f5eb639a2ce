"""The form of the JSON in columns, as `checkpoints.bundle.row_shapes` describes it, for
rows that come in as a bundle.
"""

from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any
from uuid import UUID

from orchestrator.engine.graphs.confirmation import METHODS
from orchestrator.engine.graphs.consideration import is_consideration
from orchestrator.engine.graphs.effect import EFFECTS
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE
from orchestrator.engine.graphs.limit import number_of
from orchestrator.engine.graphs.tiers import are_tiers, tiers_in
from orchestrator.engine.values.numbers import is_whole


def _is_needs(value: Any, row: Any) -> bool:
    """Return whether it is {channel: [channel]}, and leads in no circle."""
    if not isinstance(value, dict):
        return False
    for needed in value.values():
        if not isinstance(needed, list):
            return False
        if not all(isinstance(name, str) for name in needed):
            return False
    try:
        TopologicalSorter(value).prepare()
    except CycleError:
        return False
    return True


def _is_paths(value: Any, row: Any) -> bool:
    """Return whether it is {channel: path}."""
    if not isinstance(value, dict):
        return False
    return all(isinstance(path, str) for path in value.values())


def _is_limit(value: Any, row: Any) -> bool:
    """Return whether it is the text of an amount."""
    return isinstance(value, str) and number_of(value) is not None


def _is_tiers(value: Any, row: Any) -> bool:
    """Return whether it is tiers as policies have them."""
    return are_tiers(value)


def _is_moments(value: Any, row: Any) -> bool:
    """Return whether it is null, or [moment with a time zone, in ISO 8601]."""
    if value is None:
        return True
    if not isinstance(value, list):
        return False
    try:
        moments = [datetime.fromisoformat(text) for text in value]
    except (TypeError, ValueError):
        return False
    return all(moment.tzinfo is not None for moment in moments)


def _has_passed(value: Any, row: Any) -> bool:
    """Return whether a request may hold this as the moments at which its tiers acted."""
    return _is_moments(value, row) and len(value or ()) <= len(tiers_in(row.policy))


def _is_considered(value: Any, row: Any) -> bool:
    """Return whether a policy may ask for it as consideration."""
    return is_consideration(value)


def _is_counts(value: Any, row: Any) -> bool:
    """Return whether it is {channel: {effect: number of writes}}."""
    if not isinstance(value, dict):
        return False
    for counts in value.values():
        if not isinstance(counts, dict) or not counts.keys() <= {*EFFECTS}:
            return False
        if not all(map(is_whole, counts.values())):
            return False
    return True


def _is_window(value: Any, row: Any) -> bool:
    """Return whether it is a window in seconds, as policies have it."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and 0 < value <= LONGEST_DEADLINE.total_seconds()


def is_standing(value: Any) -> bool:
    """Return whether it is what a decision records of a standing policy."""
    if not isinstance(value, dict) or not isinstance(value.get("limits"), dict):
        return False
    try:
        UUID(str(value.get("id")))
    except ValueError:
        return False
    return all(map(_is_limits, value["limits"].values()))


def _is_limits(value: Any) -> bool:
    """Return whether it is {path: the highest number}, as a decision records it."""
    if not isinstance(value, dict):
        return False
    return all(_is_limit(highest, None) for highest in value.values())


# Without `gate` and `reads`, which the policies of older requests may lack.
_POLICY = {
    "on_deadline?": frozenset({"reject", "approve", "fail"}),
    "reviewers": [str],
    "quorum": int,
    "reject_quorum": int,
    "four_eyes": bool,
    "all_or_nothing": bool,
    "reason_required": [str],
    "needs?": _is_needs,
    "kept?": [int],
    "kept_since?": int,
    "kept_from?": [int],
    "confirm?": frozenset(METHODS),
    "confirm_above?": _is_limit,
    "confirm_money?": _is_paths,
    "considered?": _is_considered,
    "skip?": bool,
    "asks?": [int],
    "effects?": _is_counts,
    "exclusive?": bool,
    "claim_seconds?": int,
    "tiers?": _is_tiers,
    "veto?": str,
    "auto?": str,
    "standing?": bool,
    "auto_after?": _is_window,
    "reports?": bool,
}
_LINE = {
    "write": str,
    "label?": str,
    "revision": int,
    "hash": str,
    "verdict": frozenset({"approve", "edit", "reject", "skip"}),
    "result": str,
    "why?": (str, type(None)),
    "by?": ([str], type(None)),
    "needed?": int,
    "settled?": (str, type(None)),
    "rejected_with?": str,
    "delegator?": str,
}
REQUEST: dict[str, Any] = {
    "title": str,
    "facts": [{"label": str}],
    "why": (str, dict),
    "policy": _POLICY,
    "passed_tiers": _has_passed,
}
_ASSERTION = {
    "document": {"decisions": [dict]},
    "credential": str,
    "fingerprint": str,
    "public_key": str,
    "client_data": str,
    "authenticator_data": str,
    "signature": str,
}
COMMENT_SHAPES: dict[str, Any] = {"text": str}
RECEIPT: dict[str, Any] = {
    "lines": [_LINE],
    "assertion": (_ASSERTION, type(None)),
}
