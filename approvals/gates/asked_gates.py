"""Reads the gates that runs have reached, with the channels that each bound by `shows=`
and those that its own functions read.

A later change of such a channel would decide whom a gate asks, or whether it asks at
all, so `guarded_channels` guards it like what the gate decides. Reads only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import CharField, Min, Q, QuerySet, UUIDField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from approvals.gates.waivers import VERDICT
from approvals.models import (
    ApprovalRequest,
    Decision,
    RequestStatus,
)
from checkpoints.db.query_cache import joined_columns, padded
from checkpoints.db.rows import attributes_of, new_row
from checkpoints.db.together import KeptQuery
from checkpoints.models import Run
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


def queries_of_asked(runs: Sequence[UUID]) -> dict[str, KeptQuery]:
    """Return the queries, for `select_together`, of what `asked_gates` needs of these
    runs.
    """
    ids = padded(runs)
    return {"requests": (_query_of_requests, ids), "answers": (_query_of_answers, ids)}


def asked_gates(
    records: Mapping[str, Iterable[Sequence[Any]]],
    structure: Mapping[str, Any],
) -> list[AskedGate]:
    """Return the gates that runs have asked, on any of their lines, in the order in which
    this structure declares them; gates that it does not declare come last. `records` are
    those of `queries_of_asked`.

    Raises `TamperedRow`, `WrongKey`.
    """
    declared = {node["name"]: node["gate"] for node in structure["nodes"]}
    # A dict, so that each gate is there once, in the order of the rows.
    gates: dict[AskedGate, None] = {}
    for gate in _gates_of_requests(records["requests"]):
        gate_with_reads = _with_reads(gate, declared)
        gates[gate_with_reads] = None
    for gate in _gates_of_answers(records["answers"], declared):
        gate_with_reads = _with_reads(gate, declared)
        gates[gate_with_reads] = None

    positions = {}
    for position, name in enumerate(declared):
        positions[name] = position

    def place_in_structure(gate: AskedGate) -> tuple[int, str]:
        position = positions.get(gate.node, len(positions))
        return position, gate.node

    return sorted(gates, key=place_in_structure)


def _gates_of_requests(records: Iterable[Sequence[Any]]) -> Iterable[AskedGate]:
    """Yield the gates at which people were asked."""
    for record in records:
        gate = _gate_of_request(_verified(record))
        # Older requests about a patch do not name the gate that they ask for.
        if gate.node != PATCH:
            yield gate


_COLUMNS = attributes_of(ApprovalRequest)
_COLUMNS_OF_RUN = ("id", "encrypted", "hash_key")
"""Those that `protection_of` needs."""


def _verified(record: Sequence[Any]) -> ApprovalRequest:
    """Return the request of a record, verified against its seal. Raises `TamperedRow`,
    `WrongKey`.
    """
    count = len(_COLUMNS)
    columns = dict(zip(_COLUMNS, record[:count], strict=True))
    request = new_row(ApprovalRequest, columns)
    columns_of_run = dict(zip(_COLUMNS_OF_RUN, record[count:], strict=True))
    run = new_row(Run, columns_of_run)
    sealed_rows.verify_row(request, protection_of(run))
    return request


def _query_of_requests(*runs: UUID) -> "QuerySet[Any, Any]":
    """Build the query for one request of each policy: requests of one policy are alike."""
    requests = ApprovalRequest.objects.filter(run__in=runs).order_by()
    groups = requests.values("run", "node", "policy_hash", "status")
    # PostgreSQL has no minimum of UUIDs.
    first_as_text = Min(Cast("id", CharField()))
    firsts = groups.annotate(first=Cast(first_as_text, UUIDField()))
    columns = joined_columns(_COLUMNS, "run", _COLUMNS_OF_RUN)
    chosen = requests.filter(id__in=firsts.values("first"))
    return chosen.values_list(*columns)


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
    records: Iterable[Sequence[Any]],
    declared: Mapping[str, Any],
) -> Iterable[AskedGate]:
    """Yield the gates that let writes through because their check needed nobody, and
    those whose veto or automatic policy was asked.
    """
    for task, checked, verdict, guard in records:
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


def _query_of_answers(*runs: UUID) -> "QuerySet[Any, Any]":
    # Of all others nothing is checked: people decided, or a deadline.
    rows = Decision.objects.filter(
        Q(verdict=VERDICT) | Q(checked__isnull=False), run__in=runs
    )
    guard = KeyTextTransform("gate", "request__policy")
    answers = rows.order_by().values_list("task", "checked", "verdict", guard)
    return answers.distinct()


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
