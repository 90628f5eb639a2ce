"""A run written to a bundle before anything of it is removed, where its policy asks for that."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from checkpoints.retention.rule import Rule
from orchestrator.engine.errors import InvalidValue

WRITERS: list[Callable[[UUID, Any], str]] = []
"""Writes the bundle of a run for a person, None for the system; gives its name. Raises where it could not be written,
and then nothing of the run is removed.
"""


def require_writer(rule: Rule) -> None:
    """Raise `InvalidValue` where a policy asks for an archive and this installation has nowhere to put one."""
    if rule.archive and not WRITERS:
        message = (
            f"the policy of {rule.graph} archives runs before anything is removed, and this installation"
            " has nowhere to write bundles; nothing is removed"
        )
        raise InvalidValue(message, path="archive")


def write_bundle(rule: Rule, run: UUID, by: Any) -> str:
    """Archive a run where its policy asks for that; gives the bundle's name, empty for none."""
    return WRITERS[-1](run, by) if rule.archive else ""
