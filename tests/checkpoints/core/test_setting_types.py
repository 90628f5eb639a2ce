"""Types of settings: what each takes, and the words in which it refuses."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from checkpoints.core import setting_types
from checkpoints.core.setting_types import first_fault

KEY = "A" * 43 + "="


def read(name: str, value: Any) -> Any:
    """Return what a type makes of a value."""
    return TypeAdapter(getattr(setting_types, name)).validate_python(value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("WholeFromOne", "1e3", 1000),
        ("Text", None, ""),
        ("Hosts", "hooks.example.org, other:8443", ("hooks.example.org", "other:8443")),
        ("Hosts", "", ()),
        ("Key", KEY, bytes(32)),
        ("KeyOfBundles", "00" * 32, bytes(32)),
        ("OwnKeyOfBundles", "", b""),
        ("ProviderAddress", "", ""),
        (
            "ProviderAddress",
            "http://localhost:9000/realm",
            "http://localhost:9000/realm",
        ),
        ("Scopes", "openid email", "openid email"),
        (
            "GroupsOfDirectory",
            {"staff": "reviewer", "heads": ["reviewer", "steward"]},
            {"staff": ("reviewer",), "heads": ("reviewer", "steward")},
        ),
    ],
)
def test_a_value_is_taken(name: str, value: Any, expected: Any) -> None:
    assert read(name, value) == expected


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Switch", "perhaps", "must be true or false, not 'perhaps'"),
        ("WholeFromZero", -1, "must be a whole number that is 0 or greater, not -1"),
        ("Hosts", "https://hooks.example.org", "must be hosts in small letters"),
        ("Hosts", ["Hooks.example.org"], "must be hosts in small letters"),
        ("Key", "A" * 8, "must be 32 bytes, not 6 bytes"),
        ("KeyId", "@run", "must have an id of 1 to"),
        ("ProviderAddress", "http://login.example.org", "must be an address of https"),
        (
            "ProviderAddress",
            "https://u@login.example.org",
            "must be an address of https",
        ),
        ("Scopes", "email", "openid among them"),
        ("GroupsOfDirectory", {"staff": []}, "must be a name, or a list of names"),
        ("GroupsOfDirectory", {"staff": "x" * 151}, "must name groups, with 1 to 150"),
        ("LongToken", "short", "must have at least 32 characters"),
        ("MailSender", "a@example.org\nBcc: b@example.org", "must be an address"),
    ],
)
def test_a_value_is_refused_in_words(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        read(name, value)
    assert words in first_fault(refusal.value)[1]


@pytest.mark.parametrize("name", ["SecretText", "Secrets", "Keys", "LongToken"])
def test_a_secret_is_not_repeated(name: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        read(name, 123456789)
    assert "123456789" not in first_fault(refusal.value)[1]
