"""The verdict on a write: from decisions and a policy to where each write stands. Pure.
Signing, settling, pages and `play` all call this one function.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from uuid import UUID

from orchestrator.engine.graphs.effect import APPROVED, REJECTED, SKIPPED
from orchestrator.engine.graphs.gate import outcome_of

AUTOMATIC = -1
"""The voter of an automatic policy: the id of no account."""
VETO = "veto"
"""The verdict of a veto, which keeps open what people have approved."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules under which a request was opened. `needs` are, by channel, the channels
    without whose writes a write to it makes no sense. `skip`: people may decide that
    nothing is done, and that the way goes on.
    """

    quorum: int = 1
    reject_quorum: int = 1
    four_eyes: bool = False
    all_or_nothing: bool = False
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A held write: its current revision, the author of that revision's value (None:
    the node), and the channel that it writes.
    """

    write: UUID
    revision: int
    author: int | None = None
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """One decision: the `revision` that it counts for, `by` whom (None: the system),
    its number `seq` in the log, and whether it was the gate's deadline that decided.
    `delegator` is the person whose right its person used, where it was not their own.
    """

    write: UUID
    revision: int
    verdict: str
    by: int | None
    seq: int
    by_deadline: bool = False
    delegator: int | None = None

    @property
    def people(self) -> set[int]:
        """Return who decided, and for whom."""
        people = (self.by, self.delegator)
        return {person for person in people if person not in (None, AUTOMATIC)}


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of one write. `verdict` is empty while it is open; `by` are those
    whose signatures count now, `approving` and `skipping` how many of them approve and
    skip as long as it is open. `cause` is the write whose rejection rejected this one too.
    `vetoed`: it is open because of a veto, whoever has signed.
    """

    verdict: str = ""
    by: tuple[int | None, ...] = ()
    seq: int = 0
    cause: UUID | None = None
    approving: int = field(default=0, compare=False)
    skipping: int = field(default=0, compare=False)
    vetoed: bool = False

    @property
    def settled(self) -> bool:
        return bool(self.verdict)

    @property
    def alike(self) -> int:
        """Return how many signatures can add up: approvals and skips do not."""
        return len(self.by) - min(self.approving, self.skipping)

    def beside(self, verdict: str) -> int:
        """Return how many signatures there are that can add up with this verdict."""
        if self.settled:
            return len(self.by)
        return len(self.by) - (self.approving if verdict == "skip" else self.skipping)


def judge(
    writes: Sequence[Held],
    decisions: Iterable[Given],
    policy: Policy,
) -> dict[UUID, Standing]:
    """Return each write's standing.

    A write is approved by `quorum` approvals of its current revision, skipped by as many
    skips of it, and rejected by `reject_quorum` rejections of one revision, whichever
    came first. Approvals and skips do not add up. A later revision opens an approved or
    skipped write again; a rejected one stays rejected. So does a veto of the current
    revision: its approvals stay, and settle it with the next one. A person's latest
    verdict on a revision counts, once, whether they decided themselves or another did
    for them. A deadline's verdict settles a write whatever
    the quorum. Under `all_or_nothing` one settled rejection rejects all writes. A write
    is rejected with one that it needs.
    """
    by_write: dict[UUID, list[Given]] = {held.write: [] for held in writes}
    is_passed_on = False
    is_vetoed = False
    # What came first is decided by the log, not by the order in which rows were read.
    for decision in sorted(decisions, key=_seq):
        if decision.write in by_write:
            by_write[decision.write].append(decision)
            is_passed_on |= decision.delegator is not None
            # What a policy signed does not count beside a rejection either.
            is_passed_on |= decision.by == AUTOMATIC
            is_vetoed |= decision.verdict == VETO
    standings: dict[UUID, Standing] = {}
    for held in writes:
        decided = by_write[held.write]
        last_veto = 0
        if is_vetoed:
            last_veto = _last_veto(held, decided)
            decided = _without_vetoed(held, decided, last_veto)
        standings[held.write] = _standing(
            held, decided, policy, is_passed_on=is_passed_on, last_veto=last_veto
        )
    if policy.all_or_nothing:
        _reject_all_if_any_is(standings)
    if policy.needs:
        _reject_what_needs_rejected(writes, standings, policy.needs)
    return standings


def _seq(decision: Given) -> int:
    return decision.seq


def _last_veto(held: Held, decisions: Iterable[Given]) -> int:
    """Return the number of the last veto of a write's current revision; 0 if there is
    none.
    """
    last = 0
    for decision in decisions:
        if decision.verdict == VETO and decision.revision == held.revision:
            last = decision.seq
    return last


def _without_vetoed(
    held: Held, decisions: Iterable[Given], last_veto: int
) -> list[Given]:
    """Return the decisions without vetoes, and without what a deadline approved before
    the last one: that is no signature which could count again.
    """
    remaining: list[Given] = []
    for decision in decisions:
        is_undone = (
            decision.by_deadline
            and decision.verdict == "approve"
            and decision.revision == held.revision
            and decision.seq < last_veto
        )
        if decision.verdict != VETO and not is_undone:
            remaining.append(decision)
    return remaining


def _reject_all_if_any_is(standings: dict[UUID, Standing]) -> None:
    """Reject every write with the first rejection, if there is one. Writes that were
    rejected themselves keep their own.
    """
    rejections = [
        (standing.seq, write)
        for write, standing in standings.items()
        if standing.verdict == REJECTED
    ]
    if not rejections:
        return
    # The writes are settled from the moment of the first rejection on, by its signers.
    _, first = min(rejections)
    for write in standings:
        _reject_with(write, first, standings)


def _reject_what_needs_rejected(
    writes: Sequence[Held],
    standings: dict[UUID, Standing],
    needs: Mapping[str, Sequence[str]],
) -> None:
    """Reject each write that needs a rejected one, and what needs those. Raises
    `CycleError` if needs lead in a circle, which no graph is registered with.
    """
    by_channel: dict[str, list[UUID]] = {}
    for write in writes:
        by_channel.setdefault(write.channel, []).append(write.write)
    # A write is rejected after those that it needs, by the first of their rejections.
    for channel in TopologicalSorter(needs).static_order():
        causes: list[tuple[int, UUID]] = []
        for needed in needs.get(channel, ()):
            for write_id in by_channel.get(needed, ()):
                if standings[write_id].verdict == REJECTED:
                    causes.append((standings[write_id].seq, write_id))
        if not causes:
            continue
        _, first = min(causes)
        for write_id in by_channel.get(channel, ()):
            _reject_with(write_id, first, standings)


def _reject_with(
    write: UUID,
    cause: UUID,
    standings: dict[UUID, Standing],
) -> None:
    """Reject a write with another one, from whose rejection on it is settled, by the
    same signers. One that was rejected itself keeps its own rejection.
    """
    if standings[write].verdict == REJECTED:
        return
    rejection = standings[cause]
    standings[write] = Standing(REJECTED, rejection.by, rejection.seq, cause)


def _standing(
    held: Held,
    decisions: list[Given],
    policy: Policy,
    *,
    is_passed_on: bool,
    last_veto: int = 0,
) -> Standing:
    """Return the standing of one write after its decisions, which are in the order of
    the log. `is_passed_on`: some of them may take others out. Only a
    decision after the `last_veto` approves.
    """
    author = _first_author(held, decisions)
    by_revision: dict[int, dict[int | None, Given]] = {}
    for decision in decisions:
        if decision.by_deadline and _settles_alone(decision, held):
            return Standing(_LEADS_TO[decision.verdict], (decision.by,), decision.seq)
        if decision.verdict == "edit":
            # Author of the revision that the edit made, and of later ones that only
            # have a new base.
            author = decision.by
        by_person = by_revision.setdefault(decision.revision, {})
        if is_passed_on:
            _replace_same_people(by_person, decision)
        by_person[decision.by] = decision

        # Only the verdict that has just been given can be the one that settles it.
        verdict = _LEADS_TO[decision.verdict]
        counting = _counting(by_person.values(), author, policy)
        signers = _signers(counting, verdict)
        needed = {REJECTED: policy.reject_quorum}.get(verdict, policy.quorum)
        # Unlike an approval, a rejection of an older revision stays.
        revision = {REJECTED: decision.revision}.get(verdict, held.revision)
        is_of_revision = decision.revision == revision
        if all((is_of_revision, decision.seq > last_veto, len(signers) >= needed)):
            return Standing(verdict, signers, decision.seq)

    on_current = by_revision.get(held.revision, {}).values()
    counting = _counting(on_current, held.author, policy)
    return Standing(
        by=tuple(decision.by for decision in counting),
        approving=len(_signers(counting, APPROVED)),
        skipping=len(_signers(counting, SKIPPED)),
        vetoed=last_veto > 0,
    )


def _replace_same_people(by_person: dict[int | None, Given], decision: Given) -> None:
    """Remove the earlier decisions that involve a person of this one: nobody counts
    twice, whether in person and through a delegate, or through two delegates. A
    rejection removes what an automatic policy signed: a person outranks it.
    """
    if decision.verdict == "reject":
        by_person.pop(AUTOMATIC, None)
    people = decision.people
    for earlier in list(by_person.values()):
        if not people.isdisjoint(earlier.people):
            del by_person[earlier.by]


def _first_author(held: Held, decisions: list[Given]) -> int | None:
    """Return the author of the first revision."""
    # Once there was an edit, `held.author` is the author of the last one; revisions
    # before the first edit are the node's.
    if any(decision.verdict == "edit" for decision in decisions):
        return None
    return held.author


def _settles_alone(decision: Given, held: Held) -> bool:
    """Return whether a deadline's decision settles the write: a rejection always does,
    an approval only in the revision that it was made on.
    """
    return decision.verdict == "reject" or decision.revision == held.revision


_LEADS_TO = {
    "approve": APPROVED,
    "edit": APPROVED,
    "reject": REJECTED,
    "skip": SKIPPED,
}
"""What each verdict is for; an edit approves the value that it sets."""


def _counting(
    decisions: Iterable[Given],
    author: int | None,
    policy: Policy,
) -> list[Given]:
    """Return the decisions on a revision that count towards a quorum.

    An edit counts as its author's approval of the new value, except under four eyes,
    which exclude the author.
    """
    counting: list[Given] = []
    for decision in decisions:
        if decision.verdict == "skip" and not policy.skip:
            continue
        # Neither by themselves, nor through a person who decides for them.
        if excludes(policy, author, decision.by):
            continue
        delegator = decision.delegator
        if delegator is not None and excludes(policy, author, delegator):
            continue
        if policy.four_eyes and decision.verdict == "edit":
            continue
        counting.append(decision)
    return counting


def _signers(decisions: list[Given], verdict: str) -> tuple[int | None, ...]:
    """Return whose decisions lead to this verdict."""
    signers: list[int | None] = []
    for decision in decisions:
        if _LEADS_TO[decision.verdict] == verdict:
            signers.append(decision.by)
    return tuple(signers)


def excludes(
    policy: Policy,
    author: int | None,
    by: int | None,
) -> bool:
    """Return whether four eyes exclude this person from a revision: its author neither
    approves nor rejects it.
    """
    return policy.four_eyes and by is not None and by == author


NOT_SKIPPABLE = (
    "this gate lets nobody skip; skip=True is for calls whose node may stay undone"
)
EXCLUDED = "You edited this write, so somebody else must approve or reject it."


def outcome(standings: Iterable[Standing]) -> str | None:
    """Return approved, rejected, skipped or partial once every write is settled, else
    None.
    """
    verdicts = [standing.verdict for standing in standings]
    return outcome_of(verdicts) if all(verdicts) else None
