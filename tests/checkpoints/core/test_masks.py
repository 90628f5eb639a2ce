"""Secrets are masked in every form in which texts carry them, and nothing else is."""

import base64
import json
from decimal import Decimal
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from checkpoints.core.masks import MASK, mask_any, mask_json

SECRET = 'p/s+w"ö\\d & 7'
SECRETS = {"token": SECRET, "pin": "4711"}
FORMS = {
    "as it is": SECRET,
    "in repr": repr([SECRET]),
    "in repr of bytes": repr(SECRET.encode()),
    "in JSON": json.dumps({"a": SECRET}),
    "in JSON with its own letters": json.dumps({"a": SECRET}, ensure_ascii=False),
    "in a path": f"https://bank.example.org/{quote(SECRET)}",
    "in a query": f"?token={quote_plus(SECRET)}",
    "quoted whole": quote(SECRET, safe=""),
    "quoted in small letters": quote(SECRET, safe="").lower(),
    "in base64": base64.b64encode(SECRET.encode()).decode(),
    "in a header": "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode(),
    "in base64 at the second place": base64.b64encode(f"a{SECRET}bc".encode()).decode(),
    "in base64 at the third place": base64.b64encode(f"ab{SECRET}c".encode()).decode(),
    "in base64 for addresses": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "in hexadecimal": SECRET.encode().hex(),
    "in large hexadecimal": SECRET.encode().hex().upper(),
}


def legible(text: str) -> bool:
    """Return whether a reader of the text gets at the secret by undoing what encoded
    it, or at most of it.
    """
    return any(form in text for form in FORMS.values())


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_secret_is_masked(form: str) -> None:
    masked = mask_json(FORMS[form], SECRETS)
    assert MASK in masked
    assert not legible(masked)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pass",
        "p/s",
        "user",
        "4711 is the pin, 47 is not"[9:],
        base64.b64encode(b"another text").decode(),
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert mask_json(text, SECRETS) == text


def test_a_short_secret_is_not_met_by_chance_in_what_is_encoded() -> None:
    assert mask_json("NDcxMQ== 34373131", {"pin": "4711"}) == "NDcxMQ== 34373131"


class Shown:
    """An object whose text holds a secret."""

    def __repr__(self) -> str:
        return f"Shown({SECRET!r})"


class Said(Shown):
    """An object that hides it in `repr` and says it in `str`."""

    def __repr__(self) -> str:
        return "Said()"

    def __str__(self) -> str:
        return SECRET


class Broken:
    def __repr__(self) -> str:
        raise ValueError(SECRET)


NESTED: dict[str, Any] = {
    "list": [1, [SECRET]],
    "tuple": (SECRET,),
    "set": {SECRET},
    "keys": {SECRET: {SECRET: 1}},
    "keys of other types": {(SECRET, 1): 1},
    "sets as keys": {frozenset({SECRET}): 1, (frozenset({SECRET}), 1): 2},
    "bytes": SECRET.encode(),
    "exception": ValueError("refused", SECRET),
    "object": Shown(),
    "object within": {"a": [Shown()]},
    "object that says it": Said(),
    "object without a text": Broken(),
    "subclass of text": type("Text", (str,), {})(SECRET),
    "number": 4711,
    "decimal": Decimal(4711),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_secret_is_masked_wherever_it_is_nested(name: str) -> None:
    masked = mask_any(NESTED[name], SECRETS)
    assert not legible(f"{masked} {masked!r}")
    assert "4711" not in repr(masked)


def test_what_nests_itself_comes_to_an_end() -> None:
    endless: list[Any] = [SECRET]
    endless.append(endless)
    assert not legible(repr(mask_any(endless, SECRETS)))


def test_values_without_secrets_keep_their_types() -> None:
    document = {
        "n": 1,
        "f": 1.5,
        "b": True,
        "none": None,
        "d": Decimal("1.5"),
        "l": [1],
        "t": (1,),
    }
    assert mask_any(document, SECRETS) == document
    assert mask_any(document, {}) is document
