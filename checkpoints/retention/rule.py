"""A policy at one moment: its ages as moments, so that a dry run and the removal after
it mean the same.
"""

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
REMOVABLE = frozenset({*ENDS, Status.FAILED, Status.WAITING})
"""Statuses in which a run may be removed as a whole; of those that wait only threads,
which never end by themselves.
"""
AGED = frozenset(Status) - {Status.TAMPERED}
"""Statuses that may have an age: nothing of a tampered run is ever removed."""


@frozen
class Rule:
    """A policy whose ages are moments: by status, checkpoints from before `older` go,
    and runs that have stood still since before `ended`. `keep_last` None: no checkpoint
    goes by its number.
    """

    graph: str
    now: datetime
    keep_last: int | None
    older: Mapping[str, datetime]
    ended: Mapping[str, datetime]
    archive: bool

    @property
    def removes(self) -> bool:
        """Return whether it can remove anything at all."""
        return self.keep_last is not None or bool(self.older or self.ended)

    @property
    def removes_all(self) -> bool:
        """Return whether only what must stay is kept of the runs in some status."""
        # An age of no days removes whole runs, whatever is kept of the others.
        if any(moment >= self.now for moment in self.ended.values()):
            return True
        if self.keep_last:
            return False
        if any(moment >= self.now for moment in self.older.values()):
            return True
        # Statuses without an age keep nothing by age either.
        return self.keep_last == 0 and not self.older.keys() >= AGED

    def says_the_same(self, other: "Rule") -> bool:
        """Return whether both are the rule of one policy, at whatever moments."""
        return self._ages() == other._ages()

    def _ages(self) -> tuple[Any, ...]:
        # Compared as ages: the moments of one policy move with the clock.
        older = {status: self.now - at for status, at in self.older.items()}
        ended = {status: self.now - at for status, at in self.ended.items()}
        return self.graph, self.keep_last, older, ended, self.archive


def rule_of(policy: RetentionPolicy, *, now: datetime | None = None) -> Rule:
    """Return the rule of a policy now. Raises `InvalidValue`, naming the field, for a
    policy that is not valid.
    """
    now = now or timezone.now()
    keep_last = policy.keep_last
    if keep_last is not None:
        keep_last = checked_number(keep_last, "keep_last", most=2**31 - 1)
    ages = policy.max_age_days
    older = _moments(ages, "max_age_days", AGED, now)
    ages = policy.remove_runs_after_days
    ended = _moments(ages, "remove_runs_after_days", REMOVABLE, now)
    return Rule(policy.graph, now, keep_last, older, ended, bool(policy.archive))


def _moments(
    ages: Any, path: str, statuses: frozenset[Status], now: datetime
) -> dict[str, datetime]:
    """Return the moments that these ages in days reach back to, by status. Raises
    `InvalidValue`.
    """
    if not isinstance(ages, dict):
        raise InvalidValue(f"{path} is an object of statuses and days", path=path)
    moments = {}
    for status, days in ages.items():
        where = f"{path}.{status}"
        if status not in statuses:
            raise InvalidValue(
                f"{where}: a status here is one of {', '.join(sorted(statuses))}",
                path=where,
            )
        # JSON's `true` is an int to Python, and would mean one day.
        is_number = isinstance(days, int | float) and not isinstance(days, bool)
        if not is_number or not 0 <= days <= MOST_DAYS:
            raise InvalidValue(
                f"{where} is a number of days from 0 to {MOST_DAYS}", path=where
            )
        moments[str(status)] = now - timedelta(days=days)
    return moments


def facts_of(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON, for a job."""
    return {
        "graph": rule.graph,
        "now": rule.now.isoformat(),
        "keep_last": rule.keep_last,
        "older": {status: at.isoformat() for status, at in rule.older.items()},
        "ended": {status: at.isoformat() for status, at in rule.ended.items()},
        "archive": rule.archive,
    }


def rule_from(facts: Mapping[str, Any]) -> Rule:
    """Return the rule in the facts of a job."""
    return Rule(
        graph=facts["graph"],
        now=_moment(facts["now"]),
        keep_last=facts["keep_last"],
        older={status: _moment(at) for status, at in facts["older"].items()},
        ended={status: _moment(at) for status, at in facts["ended"].items()},
        archive=facts["archive"],
    )


def _moment(text: str) -> datetime:
    moment = parse_datetime(text)
    assert moment is not None
    return moment
