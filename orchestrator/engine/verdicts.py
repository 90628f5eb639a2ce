"""When is a write settled? Pure: decisions and a policy in, verdicts out. Signing, settling, pages and `play` all ask
this one function.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.engine.effect import APPROVED, REJECTED
from orchestrator.engine.gate import outcome_of


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules under which a request was opened."""

    quorum: int = 1
    reject_quorum: int = 1
    four_eyes: bool = False
    all_or_nothing: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A write as it stands: its current revision, and who shaped that revision's value (None: the node)."""

    write: UUID
    revision: int
    author: int | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """One decision: the `revision` that it counts for, `by` whom (None: the system), its number `seq` in the log."""

    write: UUID
    revision: int
    verdict: str
    by: int | None
    seq: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one write stands. `verdict` is empty while it is open; `by` are those whose signatures count now."""

    verdict: str = ""
    by: tuple[int | None, ...] = ()
    seq: int = 0

    @property
    def settled(self) -> bool:
        return bool(self.verdict)


def judge(writes: Sequence[Held], decisions: Iterable[Given], policy: Policy) -> dict[UUID, Standing]:
    """Each write's standing.

    A write is approved by `quorum` approvals of its current revision and rejected by `reject_quorum` rejections of one
    revision, whichever came first. A later revision opens an approved write again; a rejected one stays rejected. Of
    one person the latest verdict on a revision counts, once. Under `all_or_nothing` one settled rejection rejects all.
    """
    given: dict[UUID, list[Given]] = {held.write: [] for held in writes}
    for decision in sorted(decisions, key=lambda d: d.seq):
        if decision.write in given:
            given[decision.write].append(decision)
    standings = {held.write: _standing(held, given[held.write], policy) for held in writes}
    refused = [s for s in standings.values() if s.verdict == REJECTED]
    if policy.all_or_nothing and refused:
        first = min(refused, key=lambda s: s.seq)
        with_it = Standing(REJECTED, first.by, first.seq)
        standings = {w: s if s.verdict == REJECTED else with_it for w, s in standings.items()}
    return standings


def _standing(held: Held, decisions: list[Given], policy: Policy) -> Standing:
    revisions: dict[int, dict[int | None, Given]] = {}
    author = None if any(d.verdict == "edit" for d in decisions) else held.author
    for decision in decisions:
        if decision.verdict == "edit":
            author = decision.by  # of the revision that it made, and of those that only have a new base
        of_revision = revisions.setdefault(decision.revision, {})
        of_revision[decision.by] = decision
        counting = [d for d in of_revision.values() if _counts(d, author, policy)]
        rejected = [d for d in counting if d.verdict == "reject"]
        if len(rejected) >= policy.reject_quorum:
            return Standing(REJECTED, tuple(d.by for d in rejected), decision.seq)
        approved = [d for d in counting if d.verdict != "reject"]
        if len(approved) >= policy.quorum and decision.revision == held.revision:
            return Standing(APPROVED, tuple(d.by for d in approved), decision.seq)
    now = revisions.get(held.revision, {}).values()
    return Standing("", tuple(d.by for d in now if _counts(d, held.author, policy)), 0)


def _counts(decision: Given, author: int | None, policy: Policy) -> bool:
    """An edit counts as its author's approval of what it made, but not where four eyes exclude who shaped it."""
    return not excludes(policy, author, decision.by) and not (policy.four_eyes and decision.verdict == "edit")


def excludes(policy: Policy, author: int | None, by: int | None) -> bool:
    """Whether four eyes exclude this person from a revision: its author neither approves nor rejects it."""
    return policy.four_eyes and by is not None and by == author


EXCLUDED = "You edited this write, so somebody else must approve or reject it."


def outcome(standings: Iterable[Standing]) -> str | None:
    """approved, rejected or partial once every write is settled; None before."""
    verdicts = [standing.verdict for standing in standings]
    return outcome_of(verdicts) if all(verdicts) else None
