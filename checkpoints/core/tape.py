"""The tape of a run: a short string on its row, one word a superstep, which lists draw
without loading anything. Pure.

A word is a letter a node (p r w x h: pure, read, write, external, human), `s` for a
settlement, `!` for a failure, `<` where the run went back to an older checkpoint. Only
the first and last words stay; between them is `+n`, the number of folded words.
"""

from collections.abc import Iterable

EDGE = 8
"""Words that stay at each end."""

BACK = "<"
"""The word of a new line."""

LETTERS = {"pure": "p", "read": "r", "write": "w", "external": "x", "human": "h"}


def word(effects: Iterable[str]) -> str:
    """Return the word of a superstep whose nodes have these effects, at most eight
    letters long.
    """
    letters = [LETTERS[effect] for effect in effects]
    return "".join(letters)[:8]


def extend(tape: str, new: str) -> str:
    """Return the tape with one more word, folded in its middle."""
    words = tape.split()
    words.append(new)

    # A tape that was folded before has the number between its ends.
    folded = 0
    if len(words) > EDGE and words[EDGE].startswith("+"):
        number = words.pop(EDGE)
        folded = int(number[1:])
    while len(words) > 2 * EDGE:
        words.pop(EDGE)
        folded += 1
    if folded:
        words.insert(EDGE, f"+{folded}")
    return " ".join(words)
