"""A run's tape string as columns for lists. Pure: the string stands in the run's row, lists never load checkpoints.

The string has one word a superstep, separated by blanks; a word has one letter a task: p, r, w, x, h for its effect,
and "!" where it failed.
"""

from dataclasses import dataclass

from checkpoints.core.status import Status
from orchestrator.labels import TAPE

ENDS = 8
"""How many columns are shown at each end before the middle is folded."""


@dataclass(frozen=True, slots=True)
class Column:
    """One superstep: the CSS class of each of its blocks; or, with `folded`, how many supersteps are not drawn."""

    blocks: tuple[str, ...] = ()
    folded: int = 0


def columns(tape: str, status: str) -> list[Column]:
    """The columns of a tape cell, at most 2 × `ENDS` + 2, and one for what is going on now."""
    words = [Column(tuple(_block(letter) for letter in word)) for word in tape.split()]
    if len(words) > 2 * ENDS + 1:
        words = [*words[:ENDS], Column(folded=len(words) - 2 * ENDS), *words[-ENDS:]]
    if status == Status.RUNNING:
        words.append(Column(("now",)))
    elif status == Status.PAUSED:
        # A paused run waits in its last column: it is that block that gets the amber outline.
        if words and words[-1].blocks == ("human",):
            words.pop()
        words.append(Column(("human now",)))
    elif status == Status.QUEUED:
        words.append(Column(("todo",)))
    return words


def _block(letter: str) -> str:
    return "bad" if letter == "!" else TAPE.get(letter, "pure")
