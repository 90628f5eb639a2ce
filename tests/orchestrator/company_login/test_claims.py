"""A person is read from claims as providers send them, and from no claims that say
nothing.
"""

from typing import Any

import pytest

from orchestrator.company_login.claims import (
    ClaimNames,
    CompanyPerson,
    UnusableClaims,
    person_in,
)

ISSUER = "https://login.example.org"


def read(claims: dict[str, Any], **names: str) -> CompanyPerson:
    chosen = {"id": "sub", "name": "preferred_username", "groups": "groups", **names}
    return person_in({"sub": "s-1", **claims}, ISSUER, ClaimNames(**chosen))


@pytest.mark.parametrize(
    ("claims", "path", "groups"),
    [
        ({"groups": ["a", "b"]}, "groups", {"a", "b"}),
        ({"groups": "a"}, "groups", {"a"}),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        (
            {"https://a.example.org/groups": ["a"]},
            "https://a.example.org/groups",
            {"a"},
        ),
        ({"groups": [1, None, {"a": 1}]}, "groups", set()),
        ({"groups": {"a": True}}, "groups", set()),
        ({"realm_access": "a"}, "realm_access.roles", set()),
        ({}, "groups", set()),
    ],
)
def test_groups_are_read_where_the_provider_has_them(
    claims: dict[str, Any], path: str, groups: set[str]
) -> None:
    assert read(claims, groups=path).groups == groups


def test_groups_that_the_provider_keeps_elsewhere_are_not_taken_for_none() -> None:
    with pytest.raises(UnusableClaims, match="in more groups than"):
        read({"_claim_names": {"groups": "src1"}})


def test_groups_that_are_too_many_to_be_read_are_not_taken_for_none() -> None:
    with pytest.raises(UnusableClaims, match="in more groups than"):
        read({"groups": [str(number) for number in range(10_001)]})


@pytest.mark.parametrize("identifier", ["", None, 17, ["a"], "a" * 192, "a\x00"])
def test_who_has_no_usable_id_is_nobody(identifier: Any) -> None:
    with pytest.raises(UnusableClaims, match="did not say who you are"):
        read({"sub": identifier})


def test_an_address_that_is_not_verified_is_left_out() -> None:
    assert read({"email": "a@example.org"}).email == "a@example.org"
    assert read({"email": "a@example.org", "email_verified": False}).email == ""
    assert read({"email": "none"}).email == ""
