"""What a run may not do after a deployment: pass what its version would have gated.
Judged by paths through the source of that version and by what the run did; it knows
nothing of how versions are compared.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from tests.engine.reference import Model
from tests.properties.edits import Source

NOTHING, REFUSAL, CONSENT, FULL_CONSENT = range(4)
"""What people must have said at a gate before a way that leaves it is taken."""
SAID = {
    "rejected": REFUSAL,
    "partial": CONSENT,
    "approved": FULL_CONSENT,
    "skipped": FULL_CONSENT,
}
Way = tuple[str, str, int]
Said = tuple[int, str, int, bool]
"""Line of the log, gate, what was said there, and whether that was since the
deployment.
"""


def _ways(source: Source) -> list[Way]:
    """Every way of the graph: from, to, and what must have been said where it leaves a
    gate.
    """
    ways = [("START", target, CONSENT) for target in source.starts]
    for spec in source.specs:
        ways += [
            (spec.name, to, CONSENT)
            for to in (*spec.plain, *spec.branch, *spec.goto, *spec.sends)
        ]
        ways += [
            (spec.name, to, SAID[outcome])
            for outcome, targets in spec.when.items()
            for to in targets
        ]
        ways += [(spec.name, to, NOTHING) for to in spec.error]
    return ways


def _follow(
    ways: Iterable[Way], places: Iterable[str], waiting: Iterable[str]
) -> set[str]:
    """The nodes that come from these places, and behind the nodes that wait."""
    ways = list(ways)
    reached = set(places)
    seen = 0
    while seen != len(reached):
        seen = len(reached)
        reached |= {to for start, to, _ in ways if start in reached or start in waiting}
    return reached


class Gated:
    """A run and what its version gates of what lies ahead, noted before a deployment."""

    def __init__(self, source: Source, run: Run) -> None:
        self.run, self.ways = run, _ways(source)
        self.gates = [spec.name for spec in source.specs if spec.gated]
        self.calls = {spec.name for spec in source.specs if spec.call}
        document = timeline.head_document(run.id)
        targets = {
            id: target for id, _, target in Model(source.specs, source.starts, 0).edges
        }
        frontier = document["frontier"]
        open_ = document["open"]
        self.open = {
            task.split(":")[0]
            for task in (*open_.get("results", {}), *open_.get("tries", {}))
        }
        self.waiting = {visit.split(":")[0] for visit in frontier["waiting"]}
        parts = [
            (visit, part["status"])
            for visit, parts in frontier["waiting"].items()
            for part in parts
        ]
        # A call that people approved has yet to run.
        known = {**SAID, "call": FULL_CONSENT}
        self.before = {
            visit.split(":")[0]: known[said]
            for visit, said in sorted(parts)
            if said in known
        }
        tokens = {targets[edge] for edge in (*frontier["tokens"], *frontier["errors"])}
        self.places = {
            *tokens,
            *(target for target, _ in frontier["sends"]),
            *self.open,
        }
        self.seq = (
            Checkpoint.objects.filter(run=run.id)
            .order_by("-seq")
            .values_list("seq", flat=True)[0]
        )
        self.logged = run.event_seq
        applied = ApprovalRequest.objects.filter(
            run=run.id, status=RequestStatus.APPLIED
        )
        self.applied = set(applied.values_list("id", flat=True))

    def passed(self) -> list[str]:
        """Return what the run has done since that its version would have asked about
        before; empty: nothing.
        """
        rows = Checkpoint.objects.filter(
            run=self.run.id, seq__gt=self.seq, source__in=("superstep", "failure")
        )
        collected: list[str] = []
        signed = self._signed()
        for row in rows.defer("change", "snapshot").order_by("seq"):
            ever, since = self._said(row.event_seq, signed)
            for node in {entry["node"] for entry in row.nodes}:
                collected += self._unsigned(node, ever, since)
            done = [
                node
                for node in row.nodes
                if node["node"] in self.gates and node["outcome"] == "done"
            ]
            collected += [
                f"{event['node']} came through without its gate"
                for event in done
                if not self._was_asked(event)
            ]
        return collected

    def _was_asked(self, entry: dict[str, Any]) -> bool:
        task = f"{entry['node']}:{entry['visit']}:"
        return Decision.objects.filter(run=self.run.id, task__startswith=task).exists()

    def _unsigned(
        self, node: str, ever: dict[str, int], since: dict[str, int]
    ) -> Iterator[str]:
        if node in self._came({"START"}, ()) - self._came({"START"}, (), ever):
            yield f"{node} began, and no way that leads there was signed: {ever}"
        here = (self.places, self.waiting)
        known = self.before | dict.fromkeys(self.open, FULL_CONSENT)
        statement = {
            gate: max(since[gate], known.get(gate, NOTHING)) for gate in self.gates
        }
        # What was said at the gate of a call is about its own node.
        if node in self.calls & self.waiting and statement[node] == FULL_CONSENT:
            return
        if node in self._came(*here) - self._came(*here, statement):
            yield f"{node} began, and no way that lay ahead to it was signed: {statement}"

    def _came(
        self,
        places: set[str],
        waiting: Iterable[str],
        said: dict[str, int] | None = None,
    ) -> set[str]:
        """Return what comes from there: by ways that what was said at their gates
        allows, or whatever would be said (None).
        """
        ways = [
            way
            for way in self.ways
            if said is None or way[0] not in self.gates or way[2] <= said.get(way[0], 0)
        ]
        return _follow(ways, places, waiting)

    def _said(
        self, until: int, signed: list[Said]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The most that was said at each gate up to this line of the log: ever, and
        since the deployment.
        """
        ever: dict[str, int] = defaultdict(int)
        since: dict[str, int] = defaultdict(int)
        for seq, node, level, is_new in signed:
            if seq <= until:
                ever[node] = max(ever[node], level)
                since[node] = max(since[node], level if is_new else NOTHING)
        return ever, since

    def _signed(self) -> list[Said]:
        requests = ApprovalRequest.objects.filter(
            run=self.run.id, settled_seq__isnull=False
        )
        rows = requests.values_list("settled_seq", "node", "outcome", "id")
        signed = [
            (seq, node, SAID[outcome], id not in self.applied)
            for seq, node, outcome, id in rows
        ]
        waived = Decision.objects.filter(
            run=self.run.id, verdict="not_needed"
        ).values_list("event_seq", "task")
        return signed + [
            (seq, task.split(":")[0], FULL_CONSENT, seq > self.logged)
            for seq, task in waived
        ]
