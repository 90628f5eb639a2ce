"""What a bulk fork would do: plans with the same lists are counted together. Pure."""

import json
from dataclasses import dataclass, field
from typing import Any

from checkpoints.core.visible_text import visible_text
from orchestrator.runs.travel_plan import LISTS, Plan

MOST_EXAMPLES = 3
MOST_KINDS = 100
"""Kinds that are kept apart; further ones are counted in `others`, so that memory stays flat."""


@dataclass(slots=True)
class PlanKind:
    """Plans with the same lists: how many runs, some of them, and the plan of the first."""

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
    """The dry run over `total` runs: of `examined` of them the `kinds` of plans and the refusals."""

    total: int
    examined: int = 0
    others: int = 0
    kinds: dict[str, PlanKind] = field(default_factory=dict)
    refusals: dict[str, Refused] = field(default_factory=dict)

    def add(self, plan: Plan, run: str) -> None:
        """Count the plan of one run."""
        shown = plan.to_json()
        of_one = {"checkpoint": shown.pop("checkpoint")}
        kind = json.dumps(shown, sort_keys=True)
        if kind not in self.kinds and self._is_full():
            return
        self.kinds.setdefault(kind, PlanKind(0, [], {**of_one, **shown}))
        self._count(self.kinds[kind], run)

    def add_refusal(self, code: str, message: str, run: str) -> None:
        """Count a run that is refused."""
        kind = f"{code} {message}"
        if kind not in self.refusals and self._is_full():
            return
        self.refusals.setdefault(kind, Refused(0, [], code, message))
        self._count(self.refusals[kind], run)

    def _is_full(self) -> bool:
        full = len(self.kinds) + len(self.refusals) >= MOST_KINDS
        self.examined, self.others = self.examined + full, self.others + full
        return full

    def _count(self, kind: PlanKind | Refused, run: str) -> None:
        self.examined += 1
        kind.count += 1
        if len(kind.examples) < MOST_EXAMPLES:
            kind.examples.append(run)

    def to_json(self) -> dict[str, Any]:
        """As the API gives it, the largest kinds first."""
        kinds = sorted(self.kinds.values(), key=lambda kind: -kind.count)
        refusals = sorted(self.refusals.values(), key=lambda one: -one.count)
        return {
            "total": self.total,
            "examined": self.examined,
            "others": self.others,
            "kinds": [{"count": one.count, "examples": one.examples, "plan": one.plan} for one in kinds],
            "refusals": [
                {"count": one.count, "examples": one.examples, "code": one.code, "message": one.message}
                for one in refusals
            ],
        }

    def to_text(self) -> str:
        """As commands print it."""
        found = self.to_json()
        lines = [f"{self.examined} of {self.total} runs looked at"]
        for kind in found["kinds"]:
            lines += [f"{kind['count']} runs, such as {', '.join(kind['examples'])}:"]
            lines += [f"  {title}: {_tasks(kind['plan'][name])}" for name, title in LISTS.items()]
            if kind["plan"]["needs_yes"]:
                lines += [f"  Stops before {', '.join(kind['plan']['needs_yes'])} without a yes for each"]
        for one in found["refusals"]:
            why = f"{visible_text(one['message'])} [{one['code']}]"
            lines += [f"{one['count']} runs are refused, such as {', '.join(one['examples'])}: {why}"]
        return "\n".join([*lines, f"{self.others} runs of other kinds"] if self.others else lines)


def _tasks(told: list[dict[str, str]]) -> str:
    return ", ".join(one["task"] for one in told) or "nothing"
