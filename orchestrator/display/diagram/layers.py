"""Which column each box stands in. Links that close a loop are found first and left out. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]


def loops(names: Sequence[str], links: Iterable[Pair], starts: Sequence[str]) -> set[Pair]:
    """The links that lead back to a box from which they can be reached, in a walk from the starts in declared order."""
    after = successors(names, links)
    back: set[Pair] = set()
    done: set[str] = set()
    for root in [*starts, *names]:
        _walk(root, after, done=done, back=back)
    return back


def _walk(root: str, after: Mapping[str, list[str]], *, done: set[str], back: set[Pair]) -> None:
    # An explicit stack: a chain of a thousand nodes must not meet Python's recursion limit.
    if root in done:
        return
    open_now = {root}
    stack = [(root, iter(after[root]))]
    while stack:
        name, rest = stack[-1]
        target = next(rest, None)
        if target is None:
            stack.pop()
            open_now.discard(name)
            done.add(name)
        elif target in open_now:
            back.add((name, target))
        elif target not in done:
            open_now.add(target)
            stack.append((target, iter(after[target])))


def layer_columns(names: Sequence[str], links: Iterable[Pair]) -> dict[str, int]:
    """The column of each box: the length of the longest way to it. `links` must be free of loops."""
    links = list(links)
    after = successors(names, links)
    waiting = dict.fromkeys(names, 0)
    for _, target in links:
        waiting[target] += 1
    column = dict.fromkeys(names, 0)
    ready = [name for name in names if waiting[name] == 0]
    while ready:
        name = ready.pop(0)
        for target in after[name]:
            column[target] = max(column[target], column[name] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return column


def successors(names: Sequence[str], links: Iterable[Pair]) -> dict[str, list[str]]:
    """For each box the boxes that its links lead to, in declared order."""
    after: dict[str, list[str]] = {name: [] for name in names}
    for source, target in links:
        after[source].append(target)
    return after
