"""The dry run of a bulk fork: plans with the same lists are counted together. Pure."""

import json
from dataclasses import dataclass, field
from typing import Any

from checkpoints.core.visible_text import visible_text
from orchestrator.travel.plan import LISTS, Plan

MOST_EXAMPLES = 3
MOST_KINDS = 100
"""The most kinds that are kept apart. Runs of further kinds are counted in `others`, so
that memory stays flat.
"""


@dataclass(slots=True)
class PlanKind:
    """Plans with the same lists: the number of runs, a few of them, and the plan of the
    first.
    """

    count: int
    examples: list[str]
    plan: dict[str, Any]


@dataclass(slots=True)
class Refused:
    """Runs that are refused for the same reason."""

    count: int
    examples: list[str]
    code: str
    message: str


@dataclass(slots=True)
class BulkPlan:
    """The dry run over `total` runs: the `kinds` of plans and the `refusals` of those
    runs that were `examined`, and how many of these are of `others`.
    """

    total: int
    examined: int = 0
    others: int = 0
    kinds: dict[str, PlanKind] = field(default_factory=dict)
    refusals: dict[str, Refused] = field(default_factory=dict)

    def add(self, plan: Plan, run: str) -> None:
        """Count the plan of one run."""
        shown = plan.to_json()
        # Plans that differ in their checkpoint alone are of one kind.
        checkpoint = shown.pop("checkpoint")
        kind = json.dumps(shown, sort_keys=True)
        if kind not in self.kinds:
            if self._is_full():
                self._count_other()
                return
            self.kinds[kind] = PlanKind(0, [], {"checkpoint": checkpoint, **shown})
        self._count(self.kinds[kind], run)

    def add_refusal(self, code: str, message: str, run: str) -> None:
        """Count a run that is refused."""
        kind = f"{code} {message}"
        if kind not in self.refusals:
            if self._is_full():
                self._count_other()
                return
            self.refusals[kind] = Refused(0, [], code, message)
        self._count(self.refusals[kind], run)

    def _is_full(self) -> bool:
        return len(self.kinds) + len(self.refusals) >= MOST_KINDS

    def _count_other(self) -> None:
        self.examined += 1
        self.others += 1

    def _count(self, kind: PlanKind | Refused, run: str) -> None:
        self.examined += 1
        kind.count += 1
        if len(kind.examples) < MOST_EXAMPLES:
            kind.examples.append(run)

    def to_json(self) -> dict[str, Any]:
        """Return the dry run as the API gives it, the largest kinds first."""
        kinds = [
            {"count": kind.count, "examples": kind.examples, "plan": kind.plan}
            for kind in sorted(self.kinds.values(), key=_smaller_last)
        ]
        refusals = [
            {
                "count": refusal.count,
                "examples": refusal.examples,
                "code": refusal.code,
                "message": refusal.message,
            }
            for refusal in sorted(self.refusals.values(), key=_smaller_last)
        ]
        return {
            "total": self.total,
            "examined": self.examined,
            "others": self.others,
            "kinds": kinds,
            "refusals": refusals,
        }

    def to_text(self) -> str:
        """Return the dry run as commands print it."""
        lines = [f"{self.examined} of {self.total} runs looked at"]
        for kind in sorted(self.kinds.values(), key=_smaller_last):
            examples = ", ".join(kind.examples)
            lines.append(f"{kind.count} runs, such as {examples}:")
            for name, title in LISTS.items():
                lines.append(f"  {title}: {_task_names(kind.plan[name])}")
            if kind.plan["needs_yes"]:
                nodes = ", ".join(kind.plan["needs_yes"])
                lines.append(f"  Stops before {nodes} without a yes for each")
        for refusal in sorted(self.refusals.values(), key=_smaller_last):
            examples = ", ".join(refusal.examples)
            # A message may repeat a value of the state.
            reason = f"{visible_text(refusal.message)} [{refusal.code}]"
            lines.append(
                f"{refusal.count} runs are refused, such as {examples}: {reason}"
            )
        if self.others:
            lines.append(f"{self.others} runs of other kinds")
        return "\n".join(lines)


def _smaller_last(kind: PlanKind | Refused) -> int:
    return -kind.count


def _task_names(entries: list[dict[str, str]]) -> str:
    return ", ".join(entry["task"] for entry in entries) or "nothing"
