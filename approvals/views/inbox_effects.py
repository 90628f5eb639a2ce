"""The effects of a review in the inbox: how many writes of which class, and the sum of money that its gate declares.

One query counts the writes by channel, a second one reads what is shown of them, where a gate declares money and the
writes are few. No value is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Count, Q

from approvals.gates.edited_texts import gate_of
from approvals.models import ApprovalRequest
from approvals.views.card_pages import MANY
from approvals.views.leaf import Leaf, leaf_of
from approvals.views.value_types import decimal_of, type_of_channel
from approvals.views.write_effects import effect_of_write
from approvals.views.write_groups import amount_of
from checkpoints import versions
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.engine.compile import Compiled
from orchestrator.engine.held_patch import PATCH

Place = tuple[UUID, int, str, int, int]
"""The task of a request: run, line, node, visit, index."""
TASK = ("run_id", "line", "node", "visit", "index")
WEIGHT = {"write": 0, "external": 1}


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
        return f"{self.count:,} write{'' if self.count == 1 else 's'}"


def effects_of(requests: Sequence[ApprovalRequest]) -> dict[UUID, list[EffectCount]]:
    """For each request its writes by effect class, the lightest class first. At most two queries."""
    if not requests:
        return {}
    compiled = {request.run_id: versions.graph_for(request.run) for request in requests}
    found: dict[Place, dict[str, EffectCount]] = {}
    for row in _channels(requests):
        place, channel, count = row[:5], row[5], row[6]
        effect = _effect(compiled[place[0]], place[2], channel)
        counts = found.setdefault(place, {})
        counts.setdefault(effect, EffectCount(effect)).count += count
    _add_sums(found, requests, compiled)
    return {request.id: _sorted(found.get(_place_of(request), {})) for request in requests}


def _place_of(row: Any) -> Place:
    return (row.run_id, row.line, row.node, row.visit, row.index)


def _channels(requests: Sequence[ApprovalRequest]) -> Iterable[tuple[Any, ...]]:
    rows = PendingWrite.objects.filter(_of(requests), revision=1).order_by()
    return rows.values_list(*TASK, "channel").annotate(count=Count("id"))


def _of(requests: Iterable[ApprovalRequest]) -> Q:
    """The writes of these requests."""
    found = Q()
    for request in requests:
        found |= Q(**{name: getattr(request, name) for name in TASK})
    return found


def _add_sums(
    found: Mapping[Place, dict[str, EffectCount]],
    requests: Sequence[ApprovalRequest],
    compiled: Mapping[UUID, Compiled | None],
) -> None:
    few = [request for request in requests if request.writes <= MANY and _declares_money(compiled[request.run_id])]
    if not few:
        return
    rows = pending_writes.newest(PendingWrite.objects.filter(_of(few))).select_related("run").defer("value", "base")
    for row in rows:
        graph = compiled[row.run_id]
        shown = read_or_reason(row, "shown")
        amount = amount_of(shown.get("money")) if isinstance(shown, dict) else None
        if graph is None or amount is None:
            continue
        path = gate_of(graph, row).writes[row.channel].money or ""
        declared = type_of_channel(graph, row.channel).at(path.split("."))
        count = found[_place_of(row)][_effect(graph, row.node, row.channel)]
        count.sums[declared.currency] = count.sums.get(declared.currency, Decimal(0)) + amount
        count.moved = [leaf_of(str(total), declared=decimal_of(code)) for code, total in count.sums.items()]


def _declares_money(compiled: Compiled | None) -> bool:
    if compiled is None:
        return False
    gates = (node.gate for node in compiled.nodes.values() if node.gate)
    return any(show.money for gate in gates for show in gate.writes.values())


def _sorted(counts: Mapping[str, EffectCount]) -> list[EffectCount]:
    return sorted(counts.values(), key=lambda count: WEIGHT.get(count.effect, 0))


def _effect(compiled: Compiled | None, node: str, channel: str) -> str:
    """The effect class of a write. Where a patch goes on is not read here, so any node that sees its channel counts."""
    if node != PATCH or compiled is None:
        return effect_of_write(compiled, node, channel).effect
    seeing = (each for each in compiled.nodes.values() if each.reads is None or channel in each.reads)
    return "external" if any(each.effect == "external" for each in seeing) else "write"
