"""Reads the gates that runs have reached, with the channels that each bound by `shows=`
and those that its own functions read.

A later change of such a channel would decide whom a gate asks, or whether it asks at
all, so `guarded_channels` guards it like what the gate decides. Reads only.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import CharField, Min, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from approvals.gates.waivers import VERDICT
from approvals.models import (
    ApprovalRequest,
    Decision,
    RequestStatus,
)
from checkpoints.db import query_cache
from checkpoints.db.query_cache import joined_columns, padded
from checkpoints.db.rows import from_driver
from checkpoints.lines import Stretch, in_parts
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.step.held_patch import PATCH


@frozen
class AskedGate:
    """A gate that was asked, by the name of its node.

    `shows`: the channels that it bound. `reads`: those that its functions read; None if
    they were not recorded.
    """

    node: str
    shows: frozenset[str]
    reads: frozenset[str] | None

    def guards(self, channel: str) -> bool:
        """Return whether the gate bound a value of this channel, or read one to
        determine whom it asks.
        """
        # A gate whose reads were not recorded may have read any channel.
        if self.reads is None:
            return True
        return channel in self.reads or channel in self.shows


def asked_gates(
    runs: Collection[UUID], structure: Mapping[str, Any]
) -> list[AskedGate]:
    """Return the gates that these runs have asked, on any of their lines, in the order
    in which this structure declares them; gates that it does not declare come last.
    Three queries.

    Raises `TamperedRow`, `WrongKey`.
    """
    declared = {node["name"]: node["gate"] for node in structure["nodes"]}
    # A dict, so that each gate is there once, in the order of the rows.
    gates: dict[AskedGate, None] = {}
    for gate in _gates_of_requests(runs):
        gate_with_reads = _with_reads(gate, declared)
        gates[gate_with_reads] = None
    for gate in _gates_of_answers(runs, declared):
        gate_with_reads = _with_reads(gate, declared)
        gates[gate_with_reads] = None

    positions = {}
    for position, name in enumerate(declared):
        positions[name] = position

    def place_in_structure(gate: AskedGate) -> tuple[int, str]:
        position = positions.get(gate.node, len(positions))
        return position, gate.node

    return sorted(gates, key=place_in_structure)


def _gates_of_requests(runs: Collection[UUID]) -> Iterable[AskedGate]:
    """Yield the gates at which people were asked."""
    for part_of_runs in in_parts(runs):
        ids = _one_request_of_each_policy(part_of_runs)
        for part_of_ids in in_parts(ids):
            for request in _verified(part_of_ids):
                gate = _gate_of_request(request)
                # Older requests about a patch do not name the gate that they ask for.
                if gate.node != PATCH:
                    yield gate


def _one_request_of_each_policy(runs: Collection[UUID]) -> list[UUID]:
    """Return the ids of requests that stand for all others: requests of one policy are
    alike, so one of each is enough.
    """
    rows = query_cache.select_values(_query_of_firsts, *padded(runs))
    return [UUID(first) for *_, first in rows]


def _query_of_firsts(*runs: UUID) -> "QuerySet[Any, Any]":
    requests = ApprovalRequest.objects.filter(run__in=runs).order_by()
    groups = requests.values_list("run", "node", "policy_hash", "status")
    # PostgreSQL has no minimum of UUIDs.
    id_as_text = Cast("id", CharField())
    return groups.annotate(first=Min(id_as_text))


_COLUMNS = [field.attname for field in ApprovalRequest._meta.concrete_fields]
_COLUMNS_OF_RUN = ["id", "encrypted", "hash_key"]
"""Those that `protection_of` needs."""


def _verified(ids: Collection[UUID]) -> Sequence[ApprovalRequest]:
    """Return these requests, each verified against its seal. One query. Raises
    `TamperedRow`, `WrongKey`.
    """
    rows = query_cache.select_joined(
        ApprovalRequest,
        _COLUMNS,
        "run",
        _COLUMNS_OF_RUN,
        _query_of_requests,
        *padded(ids),
    )
    for row in rows:
        protection = protection_of(row.run)
        sealed_rows.verify_row(row, protection)
    return rows


def _query_of_requests(*ids: UUID) -> "QuerySet[Any, Any]":
    columns = joined_columns(_COLUMNS, "run", _COLUMNS_OF_RUN)
    return ApprovalRequest.objects.filter(id__in=ids).values_list(*columns)


def _gate_of_request(request: ApprovalRequest) -> AskedGate:
    policy = request.policy
    bound: Iterable[str] = ()
    # What a request has bound goes back to its people when it changes, as long as the
    # request is not applied, so it needs no guard.
    if request.status == RequestStatus.APPLIED:
        bound = policy.get("shows", ())
    return AskedGate(
        node=policy.get("gate") or request.node,
        shows=frozenset(bound),
        reads=_recorded_reads(policy.get("reads")),
    )


def _gates_of_answers(
    runs: Collection[UUID], declared: Mapping[str, Any]
) -> Iterable[AskedGate]:
    """Yield the gates that let writes through because their check needed nobody, and
    those whose veto or automatic policy was asked.
    """
    for part_of_runs in in_parts(runs):
        records = query_cache.select_values(_query_of_answers, *padded(part_of_runs))
        for task, checked, verdict, guard in from_driver(
            Decision, (*_OF_ANSWER, "guard"), records, connection.vendor
        ):
            node = guard or Task.parse(task).node
            gate = declared.get(node) or {"shows": ()}
            # What people decided on is bound as their request says.
            bound = gate["shows"] if verdict == VERDICT else ()
            facts_of_check = checked or {}
            yield AskedGate(
                node=node,
                shows=frozenset(bound),
                reads=_recorded_reads(facts_of_check.get("reads")),
            )


_OF_ANSWER = ("task", "checked", "verdict")


def _query_of_answers(*runs: UUID) -> "QuerySet[Any, Any]":
    # Of all others nothing is checked: people decided, or a deadline.
    rows = Decision.objects.filter(
        Q(verdict=VERDICT) | Q(checked__isnull=False), run__in=runs
    )
    guard = KeyTextTransform("gate", "request__policy")
    return rows.order_by().values_list(*_OF_ANSWER, guard).distinct()


def _recorded_reads(reads: Iterable[str] | None) -> frozenset[str] | None:
    if reads is None:
        return None
    return frozenset(reads)


def _with_reads(gate: AskedGate, declared: Mapping[str, Any]) -> AskedGate:
    """Return the gate with its reads, if these are certain though they were not
    recorded: a gate without functions read nothing.
    """
    if gate.reads is not None:
        return gate
    declaration = declared.get(gate.node)
    if declaration is None or _has_functions(declaration):
        return gate
    return AskedGate(gate.node, gate.shows, reads=frozenset())


def _has_functions(gate: Mapping[str, Any]) -> bool:
    """Return whether functions of the state decide whether a gate asks, or whom."""
    if gate["needs_approval"]:
        return True
    # Reviewers that a function chooses are in the structure as the name of it.
    return isinstance(gate["reviewers"], str)


def runs_on(stretches: Iterable[Stretch]) -> list[UUID]:
    """Return the ids of the runs that a way leads through, the newest first."""
    runs = (stretch.run for stretch in stretches)
    return list(dict.fromkeys(runs))
