"""What people are shown of a write once somebody edited it: its label, and title and facts of its request.

They are made anew from the gate's templates, so that nobody reads the old amount over the new one. Title and facts are
shown beside every write of the request and are part of what is signed: where they change, each of its writes does.
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
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.gate import present_edit
from orchestrator.engine.ops import same
from orchestrator.engine.requests import ShownWrite, reads_proposal, texts_after_edit


def gate_of(compiled: Compiled, row: PendingWrite) -> Gate:
    """The gate that says how a write is shown: its node's, else the first that declares its channel."""
    own = compiled.nodes[row.node].gate if row.node in compiled.nodes else None
    declared = (n.gate for n in compiled.nodes.values() if n.gate and row.channel in n.gate.writes)
    return own or next(declared, None) or Gate()


def shown_after_edit(compiled: Compiled, row: PendingWrite, value: Any) -> dict[str, Any]:
    """What is shown beside the next revision of a write, which has this value. One query where it was edited before.

    Raises `TamperedRow` where what the node had proposed is not as it was written.
    """
    first = row
    if row.author_id is not None:
        first = PendingWrite.objects.select_related("run").get(write=row.write, revision=1)
        sealed_rows.verify_row(first, protection_of(first.run))
    original, shown = read_value(first, "value"), read_value(row, "shown") or {}
    return present_edit(gate_of(compiled, row), row.channel, value, original=original, shown=shown)


def request_texts(
    request: ApprovalRequest,
    compiled: Compiled,
    rows: Sequence[PendingWrite],
    edits: Mapping[UUID, Any],
    state: Callable[[], State],
) -> dict[str, Any]:
    """Title and facts of a request of which these writes were edited; empty where no template of them reads a proposal.

    `rows` are all its writes, `edits` the new values by write; the run's `state` is asked for only where it is needed.
    """
    gate = compiled.nodes[request.node].gate if request.node in compiled.nodes else None
    if gate is None or not reads_proposal(gate, {row.channel for row in rows}):
        return {}
    writes = [ShownWrite(row.channel, edits.get(row.write, read_value(row, "value")), None) for row in rows]
    return texts_after_edit(
        gate,
        node=request.node,
        input=run_row.input_of(request.run),
        state=state(),
        writes=writes,
        facts=read_value(request, "facts") or [],
    )


def has_other_texts(row: PendingWrite, texts: Mapping[str, Any]) -> bool:
    """Whether title or facts beside this revision differ from these."""
    shown = read_value(row, "shown") or {}
    return any(not same(shown.get(name), text) for name, text in texts.items())
