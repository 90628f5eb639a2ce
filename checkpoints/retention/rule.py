"""What a policy says at one moment: the ages as moments, so that a dry run and the removal behind it mean the same."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from checkpoints.core.arguments import checked_number
from checkpoints.core.status import ENDS, Status
from checkpoints.models import RetentionPolicy
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen

MOST_DAYS = 36_500
REMOVABLE = frozenset({*ENDS, Status.FAILED})
"""Statuses in which a run may be removed as a whole."""


@frozen
class Rule:
    """A policy with the moments that its ages come to: by status, checkpoints older than `older` and runs that stand
    still since before `ended` go. `keep_last` None: no number of checkpoints goes by its place.
    """

    graph: str
    now: datetime
    keep_last: int | None
    older: Mapping[str, datetime]
    ended: Mapping[str, datetime]
    archive: bool

    @property
    def removes(self) -> bool:
        """Whether it can remove anything at all."""
        return self.keep_last is not None or bool(self.older or self.ended)

    @property
    def removes_all(self) -> bool:
        """Return whether nothing but what must stay is kept of the runs in some status."""
        if any(moment >= self.now for moment in self.ended.values()):
            return True
        if self.keep_last:
            return False
        if any(moment >= self.now for moment in self.older.values()):
            return True
        return self.keep_last == 0 and not self.older

    def says_the_same(self, other: "Rule") -> bool:
        """Whether both are of one policy, at whatever moments."""
        return self._days() == other._days()

    def _days(self) -> tuple[Any, ...]:
        ages = [{status: self.now - at for status, at in one.items()} for one in (self.older, self.ended)]
        return self.graph, self.keep_last, ages, self.archive


def rule_of(policy: RetentionPolicy, *, now: datetime | None = None) -> Rule:
    """What a policy says now. Raises `InvalidValue`, naming the field, for a policy that says nothing clear."""
    now = now or timezone.now()
    last = policy.keep_last
    return Rule(
        policy.graph,
        now,
        None if last is None else checked_number(last, "keep_last", most=2**31 - 1),
        _moments(policy.max_age_days, "max_age_days", frozenset(Status) - {Status.TAMPERED}, now),
        _moments(policy.remove_runs_after_days, "remove_runs_after_days", REMOVABLE, now),
        bool(policy.archive),
    )


def _moments(given: Any, path: str, statuses: frozenset[Status], now: datetime) -> dict[str, datetime]:
    if not isinstance(given, dict):
        raise InvalidValue(f"{path} is an object of statuses and days", path=path)
    found = {}
    for status, days in given.items():
        where = f"{path}.{status}"
        if status not in statuses:
            raise InvalidValue(f"{where}: a status here is one of {', '.join(sorted(statuses))}", path=where)
        if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= MOST_DAYS:
            raise InvalidValue(f"{where} is a number of days from 0 to {MOST_DAYS}", path=where)
        found[str(status)] = now - timedelta(days=days)
    return found


def facts_of(rule: Rule) -> dict[str, Any]:
    """A rule as JSON, for a job."""
    moments = {name: {s: at.isoformat() for s, at in getattr(rule, name).items()} for name in ("older", "ended")}
    return {
        "graph": rule.graph,
        "now": rule.now.isoformat(),
        "keep_last": rule.keep_last,
        **moments,
        "archive": rule.archive,
    }


def rule_from(facts: Mapping[str, Any]) -> Rule:
    """The rule that a job carries."""
    moments = {name: {s: _moment(at) for s, at in facts[name].items()} for name in ("older", "ended")}
    return Rule(facts["graph"], _moment(facts["now"]), facts["keep_last"], **moments, archive=facts["archive"])


def _moment(text: str) -> datetime:
    found = parse_datetime(text)
    assert found is not None
    return found
