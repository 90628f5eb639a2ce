"""A person as the provider describes them in its claims. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_ID = 191
"""The most characters of the id of a person, as the table of accounts keeps it."""
MOST_GROUPS = 10_000
"""The most groups of a person that are read."""
ELSEWHERE = "_claim_names"
"""The claim in which a provider says which claims were too long to be sent."""


class UnusableClaims(Exception):
    """The provider sent no claims by which a person could be known. The message is a
    sentence for the person.
    """


@dataclass(frozen=True, slots=True)
class CompanyPerson:
    """A person of the company. `id` never changes; all else may."""

    issuer: str
    id: str
    name: str
    email: str
    first_name: str
    last_name: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """The claims in which an installation looks for what differs between providers."""

    id: str
    name: str
    groups: str


def person_in(
    claims: Mapping[str, Any], issuer: str, names: ClaimNames
) -> CompanyPerson:
    """Return the person whom verified claims describe. Raises `UnusableClaims`."""
    identifier = _text(claims, names.id)
    if not identifier or len(identifier) > LONGEST_ID:
        raise UnusableClaims("The provider did not say who you are.")
    return CompanyPerson(
        issuer=issuer,
        id=identifier,
        name=_text(claims, names.name),
        email=_address(claims),
        first_name=_text(claims, "given_name"),
        last_name=_text(claims, "family_name"),
        groups=_groups(claims, names.groups),
    )


def _text(claims: Mapping[str, Any], name: str) -> str:
    """Return a claim that is a plain text; empty for any other."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.isprintable():
        return ""
    return value.strip()


def _address(claims: Mapping[str, Any]) -> str:
    """Return the address for mail, unless the provider says that it is not verified."""
    if claims.get("email_verified") in (False, "false"):
        return ""
    address = _text(claims, "email")
    return address if "@" in address and len(address) <= 254 else ""


def _groups(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """Return the groups that a claim names. Raises `UnusableClaims` where the provider
    has put them elsewhere: to read none would look like a person who lost them all.
    """
    value = _at(claims, path)
    if isinstance(value, str):
        value = [value]
    is_list = isinstance(value, list)
    is_too_long = is_list and len(value) > MOST_GROUPS
    if is_too_long or path in (claims.get(ELSEWHERE) or ()):
        raise UnusableClaims(
            "You are in more groups than can be sent at once. The administrator of the"
            " provider must let it send only the groups of this application."
        )
    if not is_list:
        return frozenset()
    return frozenset(name for name in value if isinstance(name, str))


def _at(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim of that name, else the value at that path inside of claims."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
