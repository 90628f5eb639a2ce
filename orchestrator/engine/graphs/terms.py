"""Terms: what a gate asks for in one run, where that is in the run's input. Pure.

A gate declares a function of the input, which returns options by name. The input of a
run never changes, so neither a patch nor a fork can ask for less; and a request carries
what it was opened under, as it does for every gate.
"""

from collections.abc import Iterator
from typing import Any

from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.functions import name_of, takes_one

TERMS = (
    "reviewers",
    "quorum",
    "reject_quorum",
    "four_eyes",
    "all_or_nothing",
    "deadline",
    "on_deadline",
    "facts",
)
"""The options that a function of the input may set."""


def faults_of_terms(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with terms, or with what stands beside them."""
    if gate.terms is None:
        return
    if not callable(gate.terms) or not takes_one(gate.terms):
        yield f"terms={gate.terms!r} is no function of the input that returns options"
    for option in ("auto", "auto_after", "exclusive", "standing"):
        # They were examined beside a quorum and a deadline that terms would replace.
        if getattr(gate, option):
            yield f"{option}= cannot stand beside terms="
    if gate.on_deadline == "approve":
        yield "on_deadline='approve' cannot stand beside terms="


def terms_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of terms, as its structure has it: {terms: name of the
    function}; nothing where it has none.
    """
    # A gate without them has the fingerprint that it had before there were any.
    return {} if gate.terms is None else {"terms": name_of(gate.terms)}


def reviewers_may_follow(gate: Any) -> bool:
    """Return whether a gate may leave it to its terms whom it asks."""
    return isinstance(gate, Gate) and gate.terms is not None
