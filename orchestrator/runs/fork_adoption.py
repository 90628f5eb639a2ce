"""A fork that a store made is a checkpoint without a run. Resuming its run id gives it the run's row, here.

Nothing may happen that a person has not agreed to. What only the plan of a fork can show and ask is refused by name:
signatures for patched channels that are guarded, writes held at that point, effects that would happen again.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError

from approvals.gates.guarded_channels import guards
from checkpoints import payloads
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, MemoryLanding, Run, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import WrongStatus
from orchestrator.runs import labels

_KEY = 200


def adopt_fork(run_id: UUID | str, *, by: AbstractBaseUser | None) -> Run | None:
    """The run of a fork that a store made, queued. None for any other id, and where it has its row already.

    Raises `WrongStatus` naming what stands against it, `UnknownThing` where its graph is not registered here.
    """
    first = _first(run_id)
    document = reader.document_at(first.id) if first else None
    if first is None or document is None:
        return None
    about = document["open"].get("stored", {})
    origin = Run.objects.filter(id=about.get("run")).first() if about.get("run") else None
    if origin is None:
        raise _refused(first, "it comes from no run of this installation, so nobody knows what it may do")
    graph = registry.by_fingerprint(first.fingerprint)
    for reason in _against(graph, origin, document, about):
        raise _refused(first, reason)
    return _opened(first, origin, graph, by=by)


def _first(run_id: UUID | str) -> Checkpoint | None:
    try:
        id = UUID(str(run_id))
    except ValueError:
        return None
    if Run.objects.filter(id=id).exists():
        return None
    return Checkpoint.objects.filter(run=id, seq=0, source=Source.FORK, kept=True).order_by("seq").first()


def _against(graph: Compiled, origin: Run, document: dict[str, Any], about: dict[str, Any]) -> Iterator[str]:
    """What speaks against going on from here without asking anybody."""
    if document["frontier"].get("waiting") or document["open"].get("asked"):
        yield "writes wait for people at that point, and would have to be asked for anew"
    if document["open"].get("superstep"):
        yield "a superstep is open at that point; fork the checkpoint before it"
    patched = {*about["patched"], *about["before"]}
    if guarded := guards(origin.id, origin.line, graph, patched):
        yield f"its patch changes what the gate of {', '.join(sorted(guarded))} guards, and needs its signatures"
    if any(node.gate and node.gate.four_eyes for node in graph.nodes.values()):
        yield "a gate of its graph asks for four eyes, and a store does not know who forked"
    later = TaskResult.objects.filter(run=origin.id).exclude(seq__lte=about["seq"])
    if acted := sorted(set(later.values_list("node", flat=True))):
        yield f"{', '.join(acted)} acted after that point, and would act again without anybody's yes"
    if MemoryLanding.objects.filter(run=origin.id, seq__gt=about["seq"]).exists():
        yield "memory was written after that point, and would be written again without anybody's yes"


def _refused(first: Checkpoint, reason: str) -> WrongStatus:
    return WrongStatus(f"fork {first.run_id} cannot be resumed: {reason}", run=str(first.run_id), reason=reason)


def _opened(first: Checkpoint, origin: Run, graph: Compiled, *, by: AbstractBaseUser | None) -> Run:
    given = read_value(origin, "input")
    short = str(first.run_id)[:8]
    # Forks that are made within a minute begin with the same digits; the whole id is always free.
    for tail in (short, str(first.run_id)):
        run = _run(first, origin, key=f"{origin.key[: _KEY - 1 - len(tail)]}~{tail}", by=by or origin.started_by)
        run.label = labels.run_label(graph, given, key=run.key)
        try:
            return ledger.create_fork(run, first, input_json=given, actor=by.get_username() if by else "")
        except IntegrityError:
            if there := Run.objects.filter(id=first.run_id).first():
                return there  # somebody else resumed it at the same moment
    raise AssertionError


def _run(first: Checkpoint, origin: Run, *, key: str, by: Any) -> Run:
    return Run(
        id=first.run_id,
        key=key,
        graph=first.graph,
        version=first.version,
        fingerprint=first.fingerprint,
        facts=origin.facts,
        encrypted=origin.encrypted,
        hash_key=origin.hash_key,
        payloads=payloads.chosen(registry.by_fingerprint(first.fingerprint).graph.payloads),
        input_hash=origin.input_hash,
        started_by=by,
        on_behalf_of=origin.on_behalf_of,
        origin_checkpoint=first.parent,
        priority=origin.priority,
    )
