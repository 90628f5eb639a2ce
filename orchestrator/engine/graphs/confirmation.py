"""Confirmations: how a person who signs at a gate must show once more who they are, and
from which amount on. Pure.

A gate declares it, a request carries it in its policy, and who signs is judged by that.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from orchestrator.engine.graphs.gate import Gate, value_at
from orchestrator.engine.graphs.limit import number_of
from orchestrator.engine.values.canonical import Json

PASSWORD = "password"  # noqa: S105 (a word, not a password)
LOG_IN = "log-in"
PASSKEY = "passkey"
METHODS = (PASSWORD, PASSKEY)
"""The ways to confirm that a gate may ask for, each stronger than those before it."""
STRENGTHS = {"": 0, PASSWORD: 1, LOG_IN: 1, PASSKEY: 2}
"""How strong each way is by which a person has confirmed; empty is none. Who has no
password here signs in anew at their provider instead.
"""
WAYS = tuple(way for way in STRENGTHS if way)
"""The ways by which a person has confirmed."""


def faults_of_confirmation(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with what an author wrote about confirmation."""
    if gate.confirm is not None and gate.confirm not in METHODS:
        choices = ", ".join(METHODS)
        yield f"confirm={gate.confirm!r} is none of {choices}"
    if gate.confirm_above is None:
        return
    if gate.confirm is None:
        yield "confirm_above= needs a confirm=; write confirm='password'"
    if not _is_amount(gate.confirm_above):
        yield (
            f"confirm_above={gate.confirm_above!r} is no amount from 0; "
            "write confirm_above=Decimal('5000')"
        )
    # Otherwise every write would be above, and the limit would say nothing.
    if not any(show.money for show in gate.writes.values()):
        yield (
            "confirm_above= compares the money of writes, and the gate names none; "
            "write writes={channel: Show(money='amount')}"
        )


def _is_amount(limit: Any) -> bool:
    # `number_of` reads what JSON has; an author may write a decimal too.
    if isinstance(limit, Decimal):
        limit = str(limit)
    number = number_of(limit)
    return number is not None and number >= 0


def confirmation_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of confirmation, as its structure and the policies of its
    requests have it, without what it does not say: {confirm, confirm_above,
    confirm_money}, the last with the paths of the amounts, by channel.
    """
    # A gate without it is hashed as before there were confirmations.
    if gate.confirm is None:
        return {}
    policy: dict[str, Json] = {"confirm": gate.confirm}
    if gate.confirm_above is not None:
        limit = Decimal(str(gate.confirm_above))
        # The same amount in one form, however many digits its author wrote.
        policy["confirm_above"] = f"{limit.normalize():f}"
        policy["confirm_money"] = {
            channel: show.money for channel, show in gate.writes.items() if show.money
        }
    return policy


def confirmation_needed(
    policy: Mapping[str, Json], channel: str, values: Iterable[Json]
) -> str:
    """Return how a person must confirm a decision on a write to a channel that has, or
    gets, these values: a method, or empty if they need not. An amount that cannot be
    read counts as above every limit.
    """
    method = str(policy.get("confirm", ""))
    limit = policy.get("confirm_above")
    if not method or limit is None:
        return method
    # The paths are those that the request was opened with, whatever is deployed now.
    paths: Mapping[str, str] = policy.get("confirm_money") or {}
    path = paths.get(channel)
    for value in values:
        amount = value_at(value, path, []) if path else None
        number = number_of(amount)
        # What is paid back is money too.
        if number is None or abs(number) > Decimal(str(limit)):
            return method
    return ""


def satisfies(method: str, needed: str) -> bool:
    """Return whether one method is at least as strong as the other; empty is none."""
    # A word of a newer version is stronger than all that is known here.
    if method not in STRENGTHS or needed not in STRENGTHS:
        return False
    return STRENGTHS[method] >= STRENGTHS[needed]


def strongest(methods: Iterable[str]) -> str:
    """Return the strongest of these methods; empty if there is none."""
    best = ""
    for method in methods:
        if not satisfies(best, method):
            best = method
    return best


def is_weaker(before: Mapping[str, Json], after: Mapping[str, Json]) -> bool:
    """Return whether the structure of one gate asks for less confirmation of some
    signature than that of another.
    """
    if not satisfies(str(after.get("confirm", "")), str(before.get("confirm", ""))):
        return True
    if not before.get("confirm"):
        return False
    limit = after.get("confirm_above")
    if limit is None:
        return False
    former = before.get("confirm_above")
    if former is None or before["confirm_money"] != after["confirm_money"]:
        return True
    return Decimal(str(limit)) > Decimal(str(former))
