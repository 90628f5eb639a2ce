"""Tiers: what a gate does while people have not decided: it reminds them, or asks
others too. Pure.

A gate declares them, a request carries them in its policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from orchestrator.engine.graphs.gate import LONGEST_DEADLINE, PRINCIPALS, Gate
from orchestrator.engine.values.canonical import Json

REMIND = "remind"
"""Those who may decide, or those whom the tier names, hear once more of the request."""
ESCALATE = "escalate"
"""Those whom the tier names become reviewers too."""
ACTS = (REMIND, ESCALATE)
LONGEST_NAME = 200
"""The most characters of a principal."""


def faults_of_tiers(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with the tiers that an author wrote."""
    tiers: Any = gate.tiers
    if isinstance(tiers, str) or not isinstance(tiers, Sequence):
        yield f"tiers={tiers!r} is no list; {_EXAMPLE}"
        return
    for tier in tiers:
        if isinstance(tier, str) or not isinstance(tier, Sequence) or len(tier) != 3:
            yield f"tier {tier!r} has not three parts; {_EXAMPLE}"
            continue
        after, act, to = tier
        yield from _faults_of_time(gate, after)
        yield from _faults_of_act(act, to)


_EXAMPLE = "write tiers=[(timedelta(hours=1), 'escalate', 'group:leads')]"


def _faults_of_time(gate: Gate, after: Any) -> Iterator[str]:
    is_time = isinstance(after, timedelta) and after.microseconds == 0
    if not is_time or not timedelta(0) < after <= LONGEST_DEADLINE:
        yield (
            f"a tier comes after {after!r}, which is no time of whole seconds, longer "
            "than 0 and at most a hundred years"
        )
        return
    if isinstance(gate.deadline, timedelta) and after >= gate.deadline:
        yield f"a tier comes after {after}, which is not before the deadline"


def _faults_of_act(act: Any, to: Any) -> Iterator[str]:
    if act not in ACTS:
        yield f"a tier does {act!r}, which is none of {', '.join(ACTS)}"
        return
    if to is None and act == REMIND:
        return
    principals = _principals(to)
    if not principals:
        yield f"a tier that does {act!r} names nobody; {_EXAMPLE}"
    for principal in principals:
        if not _is_principal(principal):
            yield (
                f"a tier names {principal!r}, which is neither user:<name>, "
                "group:<name> nor perm:<app.codename>"
            )


def _is_principal(principal: Any) -> bool:
    if not isinstance(principal, str) or len(principal) > LONGEST_NAME:
        return False
    _, _, name = principal.partition(":")
    return principal.startswith(PRINCIPALS) and bool(name)


def _principals(to: Any) -> list[Any]:
    """Return the principals that a tier names, each once; none if it names no list."""
    if isinstance(to, str):
        return [to]
    if not isinstance(to, Sequence):
        return [to] if to else []
    principals: list[Any] = []
    for principal in to:
        # Whatever an author wrote: it may be nothing that a set could hold.
        if principal not in principals:
            principals.append(principal)
    return principals


def tiers_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of tiers, as the policies of its requests have it, in the
    order in which they act: {tiers: [{after, act, to}]}, `after` in seconds from the
    opening, `to` null for those who may decide. Empty without tiers.
    """
    # A policy without it is hashed as before there were tiers.
    if not gate.tiers:
        return {}
    tiers: list[Json] = []
    for after, act, to in sorted(gate.tiers, key=_time_of):
        named = None if to is None else _principals(to)
        seconds = int(after.total_seconds())
        tiers.append({"after": seconds, "act": act, "to": named})
    return {"tiers": tiers}


def _time_of(tier: Any) -> timedelta:
    after: timedelta = tier[0]
    return after


def tiers_in(policy: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the tiers of a policy, as `tiers_policy` has them; none in that of a
    request of an older version.
    """
    tiers: list[Mapping[str, Json]] = policy.get("tiers") or []
    return tiers


def tiers_by(policy: Mapping[str, Json]) -> list[tuple[timedelta, str, Any]]:
    """Return the tiers of a policy as a gate declares them."""
    return [(time_of(tier), tier["act"], tier["to"]) for tier in tiers_in(policy)]


def are_tiers(value: Any) -> bool:
    """Return whether it is the tiers of a policy, as `tiers_policy` has them: those of
    another installation may be anything.
    """
    return isinstance(value, list) and all(map(_is_tier, value))


def _is_tier(tier: Any) -> bool:
    if not isinstance(tier, dict) or tier.get("act") not in ACTS:
        return False
    after = tier.get("after")
    # To Python a truth value is a number.
    if not isinstance(after, int) or isinstance(after, bool):
        return False
    if not 0 < after <= LONGEST_DEADLINE.total_seconds():
        return False
    to = tier.get("to")
    if to is None:
        return bool(tier["act"] == REMIND)
    return isinstance(to, list) and bool(to) and all(map(_is_principal, to))


def time_of(tier: Mapping[str, Json]) -> timedelta:
    """Return how long after the opening a tier of a policy acts."""
    return timedelta(seconds=tier["after"])


def next_tier_at(
    policy: Mapping[str, Json],
    passed: int,
    opened_at: datetime,
    deadline: datetime | None,
) -> datetime | None:
    """Return when the tier of a policy acts that follows so many; None if none does: a
    tier that is not before the deadline never acts.
    """
    tiers = tiers_in(policy)
    if passed >= len(tiers):
        return None
    at = opened_at + time_of(tiers[passed])
    return at if deadline is None or at < deadline else None


def escalated(tiers: Sequence[Mapping[str, Json]]) -> list[str]:
    """Return the principals that these tiers of a policy ask too, each once, in order."""
    principals: dict[str, None] = {}
    for tier in tiers:
        if tier["act"] == ESCALATE:
            principals.update(dict.fromkeys(tier["to"]))
    return list(principals)


def escalation_policy(gate: Gate) -> dict[str, Json]:
    """Return whom a gate may ask too in time, for its fingerprint: {escalates}, sorted;
    empty where nobody is. Reminders and times let nobody decide.
    """
    principals = sorted(escalated(tiers_in(tiers_policy(gate))))
    return {"escalates": principals} if principals else {}


def tiers_in_words(policy: Mapping[str, Json]) -> list[str]:
    """Return the tiers of a policy in words: "after 6 hours asks members of leads too"."""
    words: list[str] = []
    for tier in tiers_in(policy):
        named = "those who may decide"
        if tier["to"] is not None:
            named = ", ".join(map(principal_in_words, tier["to"]))
        does = f"asks {named} too" if tier["act"] == ESCALATE else f"reminds {named}"
        words.append(f"after {_in_words(time_of(tier))} {does}")
    return words


def _in_words(time: timedelta) -> str:
    """Return a time as a whole number of the largest possible unit: "6 hours"."""
    seconds = int(time.total_seconds())
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds % length == 0:
            return _counted(seconds // length, unit)
    return _counted(seconds, "second")


def _counted(number: int, unit: str) -> str:
    return f"1 {unit}" if number == 1 else f"{number} {unit}s"


def principal_in_words(principal: str) -> str:
    """Return whom a principal names: "members of leads"."""
    kind, _, name = principal.partition(":")
    return {"group": "members of ", "perm": "holders of "}.get(kind, "") + name
