"""The people of a soak, each a process: one starts runs, one signs, one settles what
nobody knows and resumes.

They know the database and the outside service only, lose their connections like
everybody, and then try again. `python -m tests.soak.people ROLE WORD...` runs until its
input ends, and then prints its figures as one JSON line.
"""

import json
import random
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import django

if __name__ == "__main__":
    django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402
from django.db import Error, connection  # noqa: E402

from approvals import reviews  # noqa: E402
from approvals.models import ApprovalRequest  # noqa: E402
from checkpoints.core.status import ENDS, Status  # noqa: E402
from checkpoints.ledger import pending_writes  # noqa: E402
from checkpoints.models import PendingWrite, Run, TaskResult  # noqa: E402
from orchestrator import runs
from orchestrator.engine import Task, idempotency_key  # noqa: E402
from orchestrator.engine.errors import AlreadyDecided, CountersignError, StaleProposal  # noqa: E402
from orchestrator.runs import unknown_outcomes
from tests.soak import graphs, service  # noqa: E402

GRAPH = "soak"
REVIEWER = "soak-reviewer"
SURE_SECONDS = 0.5
"""A call that was on its way when its process died has been counted by then."""


class Starter:
    """Keeps `alive` runs going."""

    def __init__(self, alive: str, seed: str, dawdle: str) -> None:
        self.alive, self.dice, self.input = (
            int(alive),
            random.Random(seed),
            {"dawdle": float(dawdle)},
        )
        self.made = 0
        self.counted: Counter[str] = Counter()

    def act(self) -> None:
        """Start what is missing; each fourth run is started twice, which must not
        matter.
        """
        live = Run.objects.filter(graph=GRAPH).exclude(status__in=ENDS).count()
        if live >= self.alive:
            return
        key = f"soak-{self.made}"
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            runs.start(GRAPH, self.input, key=key)
            self.counted["starts"] += 1
        self.made += 1


class Signer:
    """Decides what is asked, by the dice; every act has a key, and an unanswered one is
    sent again under it.
    """

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)
        self.me: User | None = None
        self.counted: Counter[str] = Counter()
        self.unanswered: tuple[Any, list[Any], str] | None = None

    def act(self) -> None:
        self.me = self.me or reviewer()
        if self.unanswered is None:
            self.unanswered = self._next()
        if self.unanswered is None:
            return
        run, decisions, key = self.unanswered
        try:
            reviews.sign(run, decisions, by=self.me, idempotency_key=key)
            self.counted["signed"] += 1
        except StaleProposal:
            self.counted["came back"] += 1
        except AlreadyDecided:
            self.counted["already decided"] += 1
        except CountersignError as refused:
            self.counted[f"refused {refused.code}"] += 1
        self.unanswered = None

    def _next(self) -> tuple[Any, list[Any], str] | None:
        request = (
            ApprovalRequest.objects.filter(graph=GRAPH, status="open")
            .order_by("?")
            .first()
        )
        if request is None:
            return None
        rows = pending_writes.newest(
            PendingWrite.objects.filter(run=request.run_id)
        ).order_by("position")
        verdict = self.dice.choice(("approve", "approve", "edit", "reject"))
        decisions = [self._decision(row, verdict) for row in rows]
        return request.run_id, decisions, f"{request.id}-{self.dice.random()}"

    def _decision(self, row: PendingWrite, verdict: str) -> dict[str, Any]:
        edits = verdict == "edit" and row.channel == "answers"
        content = {
            "write": str(row.write),
            "hash": row.hash,
            "verdict": "approve" if verdict == "edit" else verdict,
        }
        return {**content, "verdict": "edit", "value": ["edited"]} if edits else content


class Operator:
    """Looks outside and settles by what is true there; lets runs try again that took
    too many workers down.
    """

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.over_since: dict[int, float] = {}

    def act(self) -> None:
        for run in Run.objects.filter(graph=GRAPH, status=Status.UNKNOWN)[:20]:
            for row in unknown_outcomes.unknown_tasks(run):
                self._settle(run, row)
        for run in Run.objects.filter(graph=GRAPH, status=Status.FAILED)[:20]:
            runs.resume(run.id)
            self.counted[f"resumed after {run.error_code}"] += 1

    def _settle(self, run: Run, row: TaskResult) -> None:
        """Settle an attempt that is surely over, some time after its end: its effect
        has arrived by then.
        """
        if unknown_outcomes.may_be_going_on(row) is not None:
            return
        since = self.over_since.setdefault(row.id, time.monotonic())
        if time.monotonic() - since < SURE_SECONDS:
            return
        key = idempotency_key(run.id, run.line, Task(row.node, row.visit, row.index))
        happened = service.count(row.node, str(run.id), key) > 0
        output = graphs.facts(row.visit) if happened else None
        runs.settle(
            run.id, row.task, happened=happened, output=output, reason="looked outside"
        )
        self.counted[
            "settled as happened" if happened else "settled as not happened"
        ] += 1


def supersteps() -> int:
    """Return the number of supersteps of all runs of the soak."""
    return sum(Run.objects.filter(graph=GRAPH).values_list("superstep", flat=True))


def reviewer() -> User:
    """Return the person who may sign."""
    user, _ = User.objects.get_or_create(username=REVIEWER)
    user.groups.add(Group.objects.get_or_create(name="soak")[0])
    return user


ROLES: dict[str, Callable[..., Any]] = {
    "starter": Starter,
    "signer": Signer,
    "operator": Operator,
}


def _pauses(pause: float) -> Iterator[None]:
    """Yield again and again, until the input ends."""
    while not select.select([sys.stdin], [], [], pause)[0]:
        yield


def main(role: str, *words: str) -> None:
    """Act until the input ends. A lost database or a refusal is no reason to stop."""
    actor = ROLES[role](*words)
    for _ in _pauses(0.03):
        try:
            actor.act()
        except Error:
            actor.counted["database lost"] += 1
            connection.close()
            time.sleep(0.2)
        except CountersignError as refused:
            actor.counted[f"refused {refused.code}"] += 1
    print(json.dumps(actor.counted), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
