"""Secrets are masked whole, whatever they have in common."""

import itertools
from typing import Any

import pytest

from orchestrator.execution.secrets import MASK, mask_secrets

NESTED = {
    "short": "tok",
    "longer": "token-1",
    "longest": "token-1-of-the-bank",
    "other": "1-of",
}


@pytest.mark.parametrize("names", list(itertools.permutations(NESTED))[::5])
def test_a_secret_that_begins_with_another_leaks_no_tail_in_whatever_order_they_are_named(
    names: Any,
) -> None:
    secrets = {name: NESTED[name] for name in names}
    for word in NESTED.values():
        assert mask_secrets(f"a {word} b", secrets) == f"a {MASK} b"


def test_a_secret_is_masked_in_keys_lists_and_within_words_and_nothing_else_is() -> (
    None
):
    run_input = {"tok": ["x-tok-y", 5, None, {"a": "token-1"}], "free": "free"}
    assert mask_secrets(run_input, NESTED) == {
        MASK: [f"x-{MASK}-y", 5, None, {"a": MASK}],
        "free": "free",
    }
    assert mask_secrets(run_input, {"unset": ""}) is run_input


def test_signs_of_patterns_are_only_signs() -> None:
    assert mask_secrets("a.c abc (", {"one": "a.c", "two": "("}) == f"{MASK} abc {MASK}"
