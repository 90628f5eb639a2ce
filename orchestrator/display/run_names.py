"""The names of runs on pages: label and key, for forks and replays share the label of
their origin. Pure.
"""

import re
from typing import Protocol


class Named(Protocol):
    """A run, or a row that has its label and key."""

    label: str
    key: str


def run_name(run: Named) -> str:
    """Return label and key as one line of text; the key once where the label contains
    it as a word.
    """
    if not run.label:
        return run.key
    if says_key(run):
        return run.label
    return f"{run.label} · {run.key}"


def says_key(run: Named) -> bool:
    """Return whether the label contains the key as a separate word."""
    # With \b a word would end at a hyphen, which keys may have.
    word = rf"(?<![\w-]){re.escape(run.key)}(?![\w-])"
    return re.search(word, run.label) is not None
