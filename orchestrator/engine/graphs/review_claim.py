"""Claims: whether a person who takes a review keeps others from signing it, and for how
long. Pure.

A gate declares it, a request carries it in its policy.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.values.canonical import Json

USUAL_CLAIM = timedelta(hours=1)
"""How long an exclusive claim lasts where its gate does not say."""
SHORTEST_CLAIM = timedelta(seconds=1)
LONGEST_CLAIM = timedelta(days=7)


def faults_of_claims(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with what an author wrote about claims."""
    if not isinstance(gate.exclusive, bool):
        yield "exclusive must be True or False"
    # Whoever takes it could keep the others out until it approves itself.
    if gate.exclusive and gate.on_deadline == "approve":
        yield (
            "exclusive=True cannot go with on_deadline='approve': who takes the review "
            "and waits would approve it alone; take 'reject' or 'fail'"
        )
    if gate.claim_for is None:
        return
    is_time = isinstance(gate.claim_for, timedelta)
    if not is_time or not SHORTEST_CLAIM <= gate.claim_for <= LONGEST_CLAIM:
        yield (
            f"claim_for={gate.claim_for!r} is no time from a second to seven days; "
            "write claim_for=timedelta(hours=1)"
        )


def claim_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of claims, as the policies of its requests have it,
    without what it does not say: {exclusive, claim_seconds}.
    """
    # A policy without it is hashed as before there were claims.
    policy: dict[str, Json] = {}
    if gate.exclusive:
        policy["exclusive"] = True
    time = gate.claim_for
    if time is None and gate.exclusive:
        time = USUAL_CLAIM
    if time is not None:
        policy["claim_seconds"] = int(time.total_seconds())
    return policy


def claim_time(policy: Mapping[str, Json]) -> timedelta | None:
    """Return how long a claim under a policy lasts; None where it has no end."""
    seconds = policy.get("claim_seconds")
    return None if seconds is None else timedelta(seconds=seconds)
