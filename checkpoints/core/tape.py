"""The tape of a run: a short string on its row, one word a superstep, which lists draw without loading anything. Pure.

A word is a letter a node (p r w x h: pure, read, write, external, human), `s` for a settlement, `!` for a failure, `<`
where the run went back to an older checkpoint. Only the first and last words are kept; between them stands `+n`, the
number that was folded.
"""

from collections.abc import Iterable

EDGE = 8
"""Words kept at each end."""

BACK = "<"
"""The word of a new line."""

LETTERS = {"pure": "p", "read": "r", "write": "w", "external": "x", "human": "h"}


def word(effects: Iterable[str]) -> str:
    """The word of a superstep whose nodes have these effects, at most eight letters long."""
    return "".join([LETTERS[effect] for effect in effects])[:8]


def extend(tape: str, new: str) -> str:
    """The tape with one more word, folded in its middle."""
    words = [*tape.split(), new]
    folded = 0
    if len(words) > EDGE and words[EDGE].startswith("+"):
        folded = int(words.pop(EDGE)[1:])
    while len(words) > 2 * EDGE:
        words.pop(EDGE)
        folded += 1
    if folded:
        words.insert(EDGE, f"+{folded}")
    return " ".join(words)
