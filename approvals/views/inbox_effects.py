"""The effects of a request in the inbox: how many writes of which class, and the sum of
money that its gate declares.

One query counts the writes by channel, a second one reads the column `shown` of writes
where a gate declares money and the writes are few. No value is read. The effects that
writes name themselves are counted in the policy of their request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from approvals.display.leaf import Leaf, leaf_of
from approvals.display.value_types import decimal_of, type_of_channel
from approvals.gates.edited_texts import gate_of
from approvals.models import ApprovalRequest
from approvals.views.card_pages import MANY
from approvals.views.write_effects import effect_of_write, heavier
from approvals.views.write_groups import amount_of
from checkpoints import versions
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.graphs.write import named_effect, stored_form
from orchestrator.engine.step.held_patch import PATCH

TaskKey = tuple[
    UUID,
    int,
    str,
    int,
    int,
]
"""The task of a request: run, line, node, visit, index."""
TASK = (
    "run_id",
    "line",
    "node",
    "visit",
    "index",
)
WEIGHT = {
    "write": 0,
    "external": 1,
}


@dataclass(slots=True)
class EffectCount:
    """The writes of one effect class, and the amounts that they move, one a currency."""

    effect: str
    count: int = 0
    sums: dict[str, Decimal] = field(default_factory=dict)
    moved: list[Leaf] = field(default_factory=list)

    @property
    def label(self) -> str:
        if self.effect == "external":
            return f"{self.count:,} external"
        return "1 write" if self.count == 1 else f"{self.count:,} writes"


Counts = dict[TaskKey, dict[str, EffectCount]]
"""Task of a request -> effect class -> its writes."""


def effects_of(
    requests: Sequence[ApprovalRequest],
    *,
    channels: Iterable[tuple[Any, ...]] | None = None,
    with_money: bool = True,
) -> dict[UUID, list[EffectCount]]:
    """Return for each request its writes by effect class, the lightest class first. At
    most two queries; without money no column of a write is read. `channels` are the rows
    of `channels_of`, where the caller has just read them.
    """
    if not requests:
        return {}
    compiled = {request.run_id: versions.graph_for(request.run) for request in requests}
    policies = {_task_of(request): request.policy for request in requests}
    counts: Counts = {}
    if channels is None:
        channels = channels_of(requests)
    for *task, channel, count in channels:
        run_id, line, node, visit, index = task
        key = (run_id, line, node, visit, index)
        effect = _effect(compiled[run_id], node, channel)
        of_task = counts.setdefault(key, {})
        for named, number in _by_named(policies[key], channel, count):
            both = heavier(effect, named)
            of_task.setdefault(both, EffectCount(both)).count += number
    if with_money:
        _add_sums(counts, requests, compiled)
    return {
        request.id: _sorted(counts.get(_task_of(request), {})) for request in requests
    }


def _by_named(
    policy: Mapping[str, Any], channel: str, count: int
) -> Iterator[tuple[str, int]]:
    """Yield how many of the writes to a channel name which effect themselves; last, how
    many name none.
    """
    named: Mapping[str, int] = policy.get("effects", {}).get(channel, {})
    yield from named.items()
    yield "", count - sum(named.values())


def _task_of(row: Any) -> TaskKey:
    return (
        row.run_id,
        row.line,
        row.node,
        row.visit,
        row.index,
    )


def channels_of(
    requests: Sequence[ApprovalRequest],
) -> "QuerySet[PendingWrite, tuple[Any, ...]]":
    """Return the query for how many writes each task of these requests has for each
    channel. There must be at least one request.
    """
    # Each write has one first revision, so that later ones do not count twice.
    rows = PendingWrite.objects.filter(_of(requests), revision=1).order_by()
    return rows.values_list(*TASK, "channel").annotate(count=Count("id"))


def _of(requests: Iterable[ApprovalRequest]) -> Q:
    """Return the condition for writes of these requests."""
    condition = Q()
    for request in requests:
        condition |= Q(**{name: getattr(request, name) for name in TASK})
    return condition


def _add_sums(
    counts: Counts,
    requests: Sequence[ApprovalRequest],
    compiled: Mapping[UUID, Compiled | None],
) -> None:
    """Add the amounts of writes, for requests of few writes whose graph declares money."""
    # Reading the shown columns of thousands of writes would slow the inbox down.
    few = []
    for request in requests:
        if request.writes <= MANY and _declares_money(compiled[request.run_id]):
            few.append(request)
    if not few:
        return
    rows = (
        pending_writes.newest(PendingWrite.objects.filter(_of(few)))
        .select_related("run")
        .defer("value", "base")
    )
    for row in rows:
        graph = compiled[row.run_id]
        shown = _shown_of(row)
        amount = amount_of(shown.get("money"))
        if graph is None or amount is None:
            continue
        of_graph = _effect(graph, row.node, row.channel)
        effect = heavier(of_graph, named_effect(stored_form(shown)))
        # A write may have been staged since the writes were counted.
        count = counts.get(_task_of(row), {}).get(effect)
        if count is not None:
            _add_amount(count, amount, _currency_of(graph, row))


def _currency_of(graph: Compiled, row: PendingWrite) -> str:
    """Return the currency of a write's amount, which is declared where the gate finds
    the amount; empty where this version of the graph finds none.
    """
    show = gate_of(graph, row).writes.get(row.channel)
    if show is None or not show.money:
        return ""
    declared = type_of_channel(graph, row.node, row.channel).at(show.money.split("."))
    return declared.currency


def _shown_of(row: PendingWrite) -> dict[str, Any]:
    shown = read_or_reason(row, "shown")
    # If the column cannot be read, the result is the reason, as text.
    return shown if isinstance(shown, dict) else {}


def _add_amount(
    count: EffectCount,
    amount: Decimal,
    currency: str,
) -> None:
    # Amounts of different currencies have no sum.
    count.sums[currency] = count.sums.get(currency, Decimal(0)) + amount
    count.moved = [
        leaf_of(str(total), declared=decimal_of(code))
        for code, total in count.sums.items()
    ]


def _declares_money(compiled: Compiled | None) -> bool:
    """Return whether a gate of the graph declares the money that its writes move."""
    if compiled is None:
        return False
    gates = [node.gate for node in compiled.nodes.values() if node.gate]
    return any(map(_shows_money, gates))


def _shows_money(gate: Gate) -> bool:
    return any(show.money for show in gate.writes.values())


def _sorted(counts: Mapping[str, EffectCount]) -> list[EffectCount]:
    return sorted(counts.values(), key=lambda count: WEIGHT.get(count.effect, 0))


def _effect(
    compiled: Compiled | None,
    node: str,
    channel: str,
) -> str:
    """Return the effect class of a write. The node at which the run goes on after a
    patch is not read here, so any node that sees the patched channel counts.
    """
    if node != PATCH or compiled is None:
        return effect_of_write(compiled, node, channel).effect
    for candidate in compiled.nodes.values():
        sees_channel = candidate.reads is None or channel in candidate.reads
        if sees_channel and candidate.effect == "external":
            return "external"
    return "write"
