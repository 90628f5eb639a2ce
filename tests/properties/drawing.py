"""How examples are drawn: how many, from which seed, and what makes a random graph's
nodes act on the world.

COUNTERSIGN_EXAMPLES and COUNTERSIGN_SEED (a number, or `random`) say otherwise. The
seed stands in the header of the test run, and a failing example is printed with the
line that repeats it.
"""

import os
import random
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings

from approvals import deadlines, reviews
from approvals.models import VETO, ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import discovery, runs
from orchestrator.demo.claims.models import ClaimCase
from orchestrator.engine import Graph, registry
from tests.engine import reference
from tests.engine.random_graphs import built
from tests.engine.reference import Spec
from tests.support.forging import rewrite

EXAMPLES = int(os.environ.get("COUNTERSIGN_EXAMPLES", "9"))
_SAID = os.environ.get("COUNTERSIGN_SEED", "9")
SEED = random.SystemRandom().randrange(2**32) if _SAID == "random" else int(_SAID)
MOST_SUPERSTEPS = 8
MOST_TASKS = 30

CALLED: dict[UUID, Counter[tuple[str, str]]] = defaultdict(Counter)
"""What external nodes did outside, by run: (task, idempotency key) -> how often."""


def drawn(share: int = 1, *, many: int = EXAMPLES) -> settings:
    """Settings of a property that is tried on a `share`-th of so many examples."""
    quiet = [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ]
    return settings(
        max_examples=max(5, many // share),
        deadline=None,
        print_blob=True,
        suppress_health_check=quiet,
    )


def registered(
    specs: list[Spec], starts: list[str], seed: int, *, single: bool = False
) -> Graph:
    """The random graph, with effects, in the place of the one before. `single`: a gated
    node proposes one write.
    """

    def equipped(spec: Spec, node: Any) -> Any:
        return (
            (_of_one_write(node), {})
            if single and spec.gated and not spec.call
            else with_effect(spec, node, seed)
        )

    graph = built(specs, starts, seed, equipped=equipped)
    graph.max_supersteps = MOST_SUPERSTEPS
    # Noted here, so that the first life of a graph has no more moments than the next.
    discovery.note_version(registry.replace(graph))
    return graph


def _of_one_write(node: Any) -> Any:
    def proposes(state: Any, ctx: Any) -> Any:
        returned = node(state, ctx)
        return replace(returned, update=returned.update[:1])

    return proposes


def with_effect(spec: Spec, node: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """The node with an effect that the dice choose; a gated one has none."""
    kind = Random(f"{seed}/effect/{spec.name}").choice(
        ["pure", "read", "external", "write"]
    )
    if spec.call:
        return _calling(node), {}
    if spec.gated or kind == "pure":
        return node, {}
    if kind == "external":
        return _calling(node), {"effect": kind, "idempotent": True}
    return (
        (_counting(node), {"effect": kind, "atomic": True})
        if kind == "write"
        else (node, {"effect": kind})
    )


def _calling(node: Any) -> Any:
    def called(state: Any, ctx: Any) -> Any:
        CALLED[ctx.run_id][str(ctx.task), ctx.idempotency_key] += 1
        return node(state, ctx)

    return called


def _counting(node: Any) -> Any:
    def counted(state: Any, ctx: Any) -> Any:
        case, _ = ClaimCase.objects.get_or_create(
            claim_id=f"{ctx.run_id.hex[:24]}/{ctx.task}"
        )
        ClaimCase.objects.filter(id=case.id).update(changes=case.changes + 1)
        return node(state, ctx)

    return counted


def counts(run: Run) -> dict[str, int]:
    """Return what atomic nodes left in the database: task -> how often."""
    mine = ClaimCase.objects.filter(claim_id__startswith=f"{run.id.hex[:24]}/")
    return {one.claim_id.partition("/")[2]: one.changes for one in mine}


def people(seed: int) -> Any:
    """Return a reviewer that picks some open requests at random, and decides each of
    their writes at random. Or nobody decides, until a deadline comes. A run that failed
    with a deadline is resumed.
    """

    def decide(run: Run, by: User) -> bool:
        if run.status == Status.FAILED and run.error_code == "deadline_passed":
            runs.resume(run.id)
            return True
        if run.status != Status.PAUSED:
            return False
        requests = list(
            ApprovalRequest.objects.filter(run=run, status="open").order_by(
                "node", "visit", "index"
            )
        )
        dice = Random(
            f"{seed}/{[(request.task, request.ordinal) for request in requests]}"
        )
        chosen = dice.sample(requests, dice.randint(1, len(requests)))
        for request in chosen:
            task = (request.node, request.visit, request.index)
            if request.deadline and reference.lets_pass(
                seed, task, request.ordinal + 1
            ):
                # One act, for whatever befalls those who act may come in between.
                _let_come(request)
                return True
        reviews.sign(
            run.id,
            [item for request in chosen for item in _decided(request, seed)],
            by=by,
        )
        return True

    return decide


def _let_come(request: ApprovalRequest) -> None:
    """Let the deadline of a request come, and decide."""
    with transaction.atomic():
        rewrite(request, deadline=timezone.now() - timedelta(minutes=1))
        deadlines.meet_deadline(request.run_id, request.id)


def _decided(request: ApprovalRequest, seed: int) -> list[dict[str, Any]]:
    task = (request.node, request.visit, request.index)
    rows = pending_writes.newest(
        PendingWrite.objects.filter(run=request.run_id)
    ).order_by("position")
    own = [row for row in rows if (row.line, row.task) == (request.line, request.task)]
    # A veto that nothing moves would be met again and again.
    if Decision.objects.filter(request=request, verdict=VETO).exists():
        return [_item(row, "reject") for row in own]
    if request.kind == "call":
        skips = bool(request.policy.get("skip"))
        return [_decided_call(row, task, seed, skips=skips) for row in own]
    answer = next(
        content for n in range(100) if (content := reference.verdicts(seed, task, n))
    )
    return [_item(row, answer[row.position]) for row in own]


def _item(row: PendingWrite, verdict: str) -> dict[str, Any]:
    return {"write": str(row.write), "hash": row.hash, "verdict": verdict}


def _decided_call(
    row: PendingWrite, task: Any, seed: int, *, skips: bool
) -> dict[str, Any]:
    words = (reference.call_verdict(seed, task, n, skips=skips) for n in range(100))
    verdict = next(word for word in words if word)
    item = _item(row, verdict)
    if verdict == "edit":
        text = reference.edited(read_value(row, "value")["text"])
        return {**item, "value": {"text": text}}
    return item
