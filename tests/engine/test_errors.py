"""Refusals have a code of their own, a sentence with its cure, and facts."""

import inspect

import pytest

from orchestrator.engine import errors
from orchestrator.engine.errors import CountersignError

NAMED = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, CountersignError)
    and error is not CountersignError
    and not error.__name__.startswith("_")
]


@pytest.mark.parametrize("kind", NAMED, ids=lambda kind: kind.__name__)
def test_each_refusal_says_a_sentence_and_its_cure(
    kind: type[CountersignError],
) -> None:
    text = inspect.getdoc(kind) or ""
    assert text.count(".") >= 2 or ";" in text, "what happened, and what to do"


def test_no_two_refusals_share_a_code() -> None:
    codes = [kind("said").code for kind in NAMED]  # type: ignore[call-arg, arg-type]
    assert len(set(codes)) == len(codes)
    assert "refused" not in codes, "a refusal without a code of its own"


def test_a_refusal_carries_its_message_and_facts() -> None:
    error = errors.UnknownThing("there is no run 7", run="7")
    assert str(error) == "there is no run 7"
    assert error.code == "unknown_thing"
    assert error.facts == {"run": "7"}
