"""The column that each box stands in. Links that close a loop are found first and left
out. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]


def loops(
    names: Sequence[str],
    links: Iterable[Pair],
    starts: Sequence[str],
) -> set[Pair]:
    """Return the links that lead back to a box from which they can be reached, in a
    walk from the starts in declared order.
    """
    after = successors(names, links)
    back: set[Pair] = set()
    finished: set[str] = set()
    # Boxes that no start leads to may form loops as well.
    for root in [*starts, *names]:
        _walk(root, after, finished=finished, back=back)
    return back


def _walk(
    root: str,
    after: Mapping[str, list[str]],
    *,
    finished: set[str],
    back: set[Pair],
) -> None:
    """Walk on from a box, and add to `finished` the boxes that were walked, and to
    `back` the links that close a loop.
    """
    if root in finished:
        return
    # An explicit stack: a chain of a thousand nodes must not meet Python's recursion
    # limit.
    on_path = {root}
    stack = [(root, iter(after[root]))]
    while stack:
        name, targets = stack[-1]
        target = next(targets, None)
        if target is None:
            stack.pop()
            on_path.discard(name)
            finished.add(name)
        elif target in on_path:
            back.add((name, target))
        elif target not in finished:
            on_path.add(target)
            stack.append((target, iter(after[target])))


def layer_columns(names: Sequence[str], links: Sequence[Pair]) -> dict[str, int]:
    """Return the column of each box: the length of the longest way to it. `links` must
    be free of loops.
    """
    after = successors(names, links)
    links_to = dict.fromkeys(names, 0)
    for _, target in links:
        links_to[target] += 1
    columns = dict.fromkeys(names, 0)

    # A box is ready once all boxes that lead to it have their columns.
    ready = [name for name in names if links_to[name] == 0]
    while ready:
        name = ready.pop(0)
        for target in after[name]:
            columns[target] = max(columns[target], columns[name] + 1)
            links_to[target] -= 1
            if links_to[target] == 0:
                ready.append(target)
    return columns


def successors(
    names: Sequence[str],
    links: Iterable[Pair],
) -> dict[str, list[str]]:
    """Return for each box the boxes that its links lead to, in declared order."""
    after: dict[str, list[str]] = {name: [] for name in names}
    for source, target in links:
        after[source].append(target)
    return after
