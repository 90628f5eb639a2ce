"""A run's tape string (`checkpoints.core.tape`) as columns for lists. Pure: lists never
load checkpoints.
"""

from dataclasses import dataclass, replace

from checkpoints.core import tape as words
from checkpoints.core.status import Status

BLOCKS = {letter: effect for effect, letter in words.LETTERS.items()}
"""The CSS class of the block of each letter."""
# A settlement applies what people decided, so it looks like a person's node.
BLOCKS["s"] = "human"
BLOCKS["!"] = "bad"
BLOCKS[words.BACK] = "back"


@dataclass(frozen=True, slots=True)
class TapeColumn:
    """One superstep: the CSS class of each of its blocks; or, with `folded`, how many
    supersteps are not drawn.
    """

    blocks: tuple[str, ...] = ()
    folded: int = 0


def tape_columns(tape: str, status: str) -> list[TapeColumn]:
    """Return the columns of a tape cell, with what happens now."""
    columns = [_column(word) for word in tape.split()]
    if status == Status.RUNNING:
        columns.append(TapeColumn(("now",)))
    elif status == Status.QUEUED:
        columns.append(TapeColumn(("todo",)))
    elif status == Status.PAUSED and columns:
        # A paused run waits in its last column: its block gets the amber outline.
        columns[-1] = _outlined(columns[-1])
    return columns


def _outlined(column: TapeColumn) -> TapeColumn:
    """Return the column with an outline around the blocks of people."""
    blocks: list[str] = []
    for block in column.blocks:
        if block == "human":
            block = "human now"
        blocks.append(block)
    return replace(column, blocks=tuple(blocks))


def _column(word: str) -> TapeColumn:
    if word.startswith("+"):
        return TapeColumn(folded=int(word[1:]))
    blocks: list[str] = []
    for letter in word:
        # A letter that is not known here is drawn like that of a pure node.
        blocks.append(BLOCKS.get(letter, "pure"))
    return TapeColumn(tuple(blocks))
