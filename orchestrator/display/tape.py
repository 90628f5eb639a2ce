"""A run's tape string (`checkpoints.core.tape`) as columns for lists. Pure: lists never load checkpoints."""

from dataclasses import dataclass

from checkpoints.core import tape as words
from checkpoints.core.status import Status

BLOCKS = {letter: effect for effect, letter in words.LETTERS.items()} | {"s": "human", "!": "bad", words.BACK: "back"}
"""Letter -> CSS class of its block. A settlement is what people did, so it is drawn as theirs."""


@dataclass(frozen=True, slots=True)
class Column:
    """One superstep: the CSS class of each of its blocks; or, with `folded`, how many supersteps are not drawn."""

    blocks: tuple[str, ...] = ()
    folded: int = 0


def tape_columns(tape: str, status: str) -> list[Column]:
    """The columns of a tape cell, and what is going on now."""
    found = [_column(word) for word in tape.split()]
    if status == Status.PAUSED and found and "human" in found[-1].blocks:
        # A paused run waits in its last column: its block gets the amber outline.
        found[-1] = Column(tuple("human now" if block == "human" else block for block in found[-1].blocks))
    elif status == Status.RUNNING:
        found.append(Column(("now",)))
    elif status == Status.QUEUED:
        found.append(Column(("todo",)))
    return found


def _column(word: str) -> Column:
    if word.startswith("+"):
        return Column(folded=int(word[1:]))
    return Column(tuple(BLOCKS.get(letter, "pure") for letter in word))
