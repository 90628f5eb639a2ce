"""The gates that runs have asked: what each bound by `shows=`, and which channels its own functions read.

Who sets such a channel later decides whom a gate asks, or whether it asks at all, so `guarded_channels` guards it like
what the gate decides. Reads only.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import CharField, Min
from django.db.models.functions import Cast

from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.lines import in_parts
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH


@frozen
class AskedGate:
    """A gate as it was asked, by the name of its node: the channels that it bound, and those that its functions read;
    None where nobody wrote these down.
    """

    node: str
    shows: frozenset[str]
    reads: frozenset[str] | None

    def guards(self, channel: str) -> bool:
        """Return whether a value of this channel was bound by the gate, or read to say whom it asks."""
        return self.reads is None or channel in self.reads or channel in self.shows


def asked_gates(runs: Collection[UUID], structure: Mapping[str, Any]) -> list[AskedGate]:
    """Return the gates that these runs have asked, on whichever of their lines, in the order in which this structure
    declares them; those that it does not have come last. Three queries.

    Raises `TamperedRow`, `WrongKey`.
    """
    declared = {node["name"]: node["gate"] for node in structure["nodes"]}
    found = [_resolved(gate, declared) for gate in (*_by_requests(runs), *_by_waivers(runs, declared))]
    order = {name: number for number, name in enumerate(declared)}
    return sorted(dict.fromkeys(found), key=lambda gate: (order.get(gate.node, len(order)), gate.node))


def _by_requests(runs: Collection[UUID]) -> Iterable[AskedGate]:
    """The gates that people were asked at. Requests of one policy are alike, so one of each is read. What a request
    bound that is not applied comes back to its people when it changes, so it needs no guard.
    """
    for some in in_parts(runs):
        alike = ApprovalRequest.objects.filter(run__in=some).order_by().values("run", "node", "policy_hash", "status")
        firsts = [row["first"] for row in alike.annotate(first=Min(Cast("id", CharField())))]
        for ids in in_parts([UUID(first) for first in firsts]):
            for row in _verified(ApprovalRequest.objects.filter(id__in=ids)):
                node = row.policy.get("gate") or row.node
                if node != PATCH:
                    bound = row.policy.get("shows", ()) if row.status == RequestStatus.APPLIED else ()
                    yield AskedGate(node, frozenset(bound), _names(row.policy.get("reads")))


def _verified(rows: Any) -> Sequence[ApprovalRequest]:
    own = [field.attname for field in ApprovalRequest._meta.concrete_fields]
    found = list(rows.select_related("run").only(*own, "run__encrypted", "run__hash_key"))
    for row in found:
        sealed_rows.verify_row(row, protection_of(row.run))
    return found


def _by_waivers(runs: Collection[UUID], declared: Mapping[str, Any]) -> Iterable[AskedGate]:
    """The gates that let writes through because their check said that nobody was needed."""
    for some in in_parts(runs):
        rows = Decision.objects.filter(run__in=some, verdict=VERDICT).order_by()
        for task, checked in rows.values_list("task", "checked").distinct():
            node = Task.parse(task).node
            gate = declared.get(node) or {"shows": ()}
            yield AskedGate(node, frozenset(gate["shows"]), _names((checked or {}).get("reads")))


def _names(reads: Any) -> frozenset[str] | None:
    return None if reads is None else frozenset(reads)


def _resolved(asked: AskedGate, declared: Mapping[str, Any]) -> AskedGate:
    """The gate as it was asked. Where nobody wrote down what it read, it read nothing if it has no functions."""
    gate = declared.get(asked.node)
    if asked.reads is not None or gate is None or _has_functions(gate):
        return asked
    return AskedGate(asked.node, asked.shows, frozenset())


def _has_functions(gate: Mapping[str, Any]) -> bool:
    """Return whether functions of the state decide whether a gate asks, or whom: a structure has their names."""
    return bool(gate["needs_approval"]) or isinstance(gate["reviewers"], str)


def runs_on(stretches: Iterable[Any]) -> list[UUID]:
    """Return the ids of the runs that a way leads through, the newest first."""
    return list(dict.fromkeys(one.run for one in stretches))
