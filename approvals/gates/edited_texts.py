"""The texts that people are shown beside a write after an edit: its label, and the
title and facts of its request.

They are rendered again from the gate's templates, so that nobody reads the old amount
beside the new one. Title and facts are shown beside every write of the request and are
part of what is signed: if they change, each of its writes changes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.models import ApprovalRequest
from checkpoints.models import PendingWrite
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Gate
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.gates.requests import (
    ShownWrite,
    reads_proposal,
    texts_after_edit,
)
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.gate import present_edit
from orchestrator.engine.graphs.limit import require_within_limits
from orchestrator.engine.graphs.question import NO_VALUE, require_fitting
from orchestrator.engine.graphs.write import require_fitting_form
from orchestrator.engine.values.ops import same


def gate_of(compiled: Compiled, row: PendingWrite) -> Gate:
    """Return the gate that says how a write is shown: its node's, else the first that
    declares its channel.
    """
    if row.node in compiled.nodes:
        own_gate = compiled.nodes[row.node].gate
        if own_gate:
            return own_gate
    for node in compiled.nodes.values():
        if node.gate and row.channel in node.gate.writes:
            return node.gate
    return Gate()


def proposed_value(row: PendingWrite) -> Any:
    """Return the value that the node proposed, however often the write has been edited.
    One query if it was.

    Raises `TamperedRow` if the proposal is not as it was written.
    """
    if row.author_id is None:
        return read_value(row, "value")
    first = PendingWrite.objects.select_related("run").get(write=row.write, revision=1)
    sealed_rows.verify_row(first, protection_of(first.run))
    return read_value(first, "value")


def shown_after_edit(
    compiled: Compiled, row: PendingWrite, value: Any
) -> dict[str, Any]:
    """Return what is shown beside the next revision of a write, which has this value.
    One query if it was edited before.

    Raises `InvalidValue` if the value is outside the limits that are shown beside the
    write, and `TamperedRow` if what the node had proposed is not as it was written.
    """
    # An edit is compared with what the node proposed: small steps lead no further than
    # one large step would.
    proposed = proposed_value(row)
    shown = read_value(row, "shown") or {}
    require_allowed(shown, row, value, proposed=proposed)
    return present_edit(
        gate_of(compiled, row), row.channel, value, original=proposed, shown=shown
    )


def require_allowed(
    shown: Mapping[str, Any], row: PendingWrite, value: Any, *, proposed: Any
) -> None:
    """Raise `InvalidValue`, naming each part, if the form of a write does not let it be
    edited to this value, or answered with it.
    """
    if "ask" in shown:
        proposed = NO_VALUE
    require_fitting(shown, row.channel, value, write=str(row.write))
    require_fitting_form(shown, row.channel, value, write=str(row.write))
    require_within_limits(
        shown, row.channel, proposed=proposed, edited=value, write=str(row.write)
    )


def gate_on_request(compiled: Compiled, request: ApprovalRequest) -> Gate | None:
    """Return the gate of the node that asked, with what its terms say in this run; None
    without a gate. Raises `InvalidValue` if they fail.
    """
    node = compiled.nodes.get(request.node)
    if node is None or node.gate is None or node.gate.terms is None:
        return None if node is None else node.gate
    return gate_on_run(compiled, node.gate, run_row.input_of(request.run))


def request_texts(
    request: ApprovalRequest,
    compiled: Compiled,
    rows: Sequence[PendingWrite],
    edits: Mapping[UUID, Any],
    state: Callable[[], State],
) -> dict[str, Any]:
    """Return title and facts of a request after edits of its writes; nothing if none of
    its templates reads a proposal. Raises `InvalidValue` if the terms of its gate fail.

    `rows` are all its writes, `edits` the new values by write; the run's `state` is
    read only if it is needed.
    """
    gate = gate_on_request(compiled, request)
    if gate is None or not reads_proposal(gate, {row.channel for row in rows}):
        return {}
    writes = []
    for row in rows:
        value = edits.get(row.write, read_value(row, "value"))
        writes.append(ShownWrite(row.channel, value, None))
    return texts_after_edit(
        gate,
        node=request.node,
        input=run_row.input_of(request.run),
        state=state(),
        writes=writes,
        facts=read_value(request, "facts") or [],
    )


def has_other_texts(row: PendingWrite, texts: Mapping[str, Any]) -> bool:
    """Return whether the title or facts beside this revision differ from these."""
    shown = read_value(row, "shown") or {}
    return any(not same(shown.get(name), text) for name, text in texts.items())
