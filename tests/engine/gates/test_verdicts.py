"""When a write is settled: every rule of counting, on its own and on a real run."""

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from orchestrator.engine.gates.verdicts import (
    APPROVED,
    AUTOMATIC,
    REJECTED,
    SKIPPED,
    Given,
    Held,
    Policy,
    Standing,
    judge,
    outcome,
    outcome_of,
)
from tests.support import cast, run_actions
from tests.support.run_actions import sign, state
from tests.support.small_graphs import advanced, graph

ONE = UUID(int=1)
TWO = UUID(int=2)
THREE = UUID(int=3)
ANN = 1
BOB = 2
CARL = 3
Signed = tuple[int | None, str, int]


def _standing(
    policy: Policy, *signed: Signed, revision: int = 1, author: int | None = None
) -> Standing:
    """Return where a write stands after these (person, verdict, revision), in order."""
    votes = [
        Given(ONE, of, verdict, by, seq)
        for seq, (by, verdict, of) in enumerate(signed, start=1)
    ]
    return judge([Held(ONE, revision, author)], votes, policy)[ONE]


def test_a_write_is_open_until_the_quorum_is_full() -> None:
    policy = Policy(quorum=2)
    assert _standing(policy, (ANN, "approve", 1)) == Standing("", (ANN,), 0)
    assert _standing(policy, (ANN, "approve", 1), (BOB, "approve", 1)) == Standing(
        APPROVED, (ANN, BOB), 2
    )


def test_nobody_counts_twice() -> None:
    policy = Policy(quorum=2, reject_quorum=2)
    assert not _standing(policy, (ANN, "approve", 1), (ANN, "approve", 1)).settled
    assert not _standing(policy, (ANN, "reject", 1), (ANN, "reject", 1)).settled


def test_the_latest_verdict_of_a_person_counts() -> None:
    policy = Policy(quorum=2, reject_quorum=2)
    changed: list[Signed] = [(ANN, "reject", 1), (ANN, "approve", 1)]
    assert not _standing(policy, *changed, (BOB, "reject", 1)).settled
    assert _standing(policy, *changed, (BOB, "approve", 1)).verdict == APPROVED


def test_a_write_is_rejected_when_as_many_reject_it_as_the_gate_asks_for() -> None:
    policy = Policy(reject_quorum=2, quorum=2)
    assert not _standing(policy, (ANN, "reject", 1)).settled
    assert _standing(policy, (ANN, "reject", 1), (BOB, "reject", 1)) == Standing(
        REJECTED, (ANN, BOB), 2
    )


@pytest.mark.parametrize(
    ("first", "second"), [("approve", "reject"), ("reject", "approve")]
)
def test_what_comes_first_settles_it_and_what_comes_later_changes_nothing(
    first: str, second: str
) -> None:
    standing = _standing(Policy(), (ANN, first, 1), (BOB, second, 1))
    assert standing.verdict[: len(first)] == first
    assert standing.by == (ANN,)
    assert standing.seq == 1


def test_approvals_of_an_older_revision_do_not_count() -> None:
    assert not _standing(Policy(), (ANN, "approve", 1), revision=2).settled
    assert not _standing(
        Policy(quorum=2), (ANN, "approve", 1), (BOB, "approve", 2), revision=2
    ).settled


def test_a_rejected_write_stays_rejected_on_a_new_base() -> None:
    assert _standing(Policy(), (ANN, "reject", 1), revision=2).verdict == REJECTED


def test_a_write_is_skipped_by_as_many_skips_as_approvals_would_be_needed() -> None:
    policy = Policy(quorum=2, skip=True)
    assert not _standing(policy, (ANN, "skip", 1)).settled
    skipped = _standing(policy, (ANN, "skip", 1), (BOB, "skip", 1))
    assert skipped == Standing(SKIPPED, (ANN, BOB), 2)
    assert outcome([skipped]) == SKIPPED


def test_approvals_and_skips_do_not_add_up() -> None:
    policy = Policy(quorum=2, skip=True)
    mixed: list[Signed] = [(ANN, "approve", 1), (BOB, "skip", 1)]
    assert not _standing(policy, *mixed).settled
    assert _standing(policy, *mixed, (CARL, "skip", 1)).by == (BOB, CARL)


def test_who_approves_is_no_signature_of_a_skip() -> None:
    policy = Policy(quorum=3, skip=True)
    two: list[Signed] = [(ANN, "approve", 1), (BOB, "approve", 1)]
    standing = _standing(policy, *two, (CARL, "skip", 1))
    assert (standing.beside("skip"), standing.beside("approve")) == (1, 2)
    assert standing.alike == 2


def test_a_skip_of_an_older_revision_does_not_count() -> None:
    policy = Policy(skip=True)
    assert not _standing(policy, (ANN, "skip", 1), revision=2).settled


def test_a_skip_counts_for_nothing_where_the_gate_lets_nobody_skip() -> None:
    assert _standing(Policy(), (ANN, "skip", 1)) == Standing()


def test_under_four_eyes_who_edited_a_call_cannot_skip_it() -> None:
    policy = Policy(four_eyes=True, skip=True)
    assert not _standing(policy, (ANN, "skip", 2), revision=2, author=ANN).settled


def test_what_was_skipped_in_part_is_approved_and_else_partial() -> None:
    assert outcome_of([APPROVED, SKIPPED]) == APPROVED
    assert outcome_of([REJECTED, SKIPPED]) == "partial"


def test_an_edit_is_its_authors_approval() -> None:
    assert (
        _standing(Policy(), (ANN, "edit", 2), revision=2, author=ANN).verdict
        == APPROVED
    )


def test_under_four_eyes_neither_the_edit_nor_its_author_approves_the_revision() -> (
    None
):
    policy = Policy(four_eyes=True)
    edit: Signed = (ANN, "edit", 2)
    assert not _standing(policy, edit, revision=2, author=ANN).settled
    assert not _standing(
        policy, edit, (ANN, "approve", 2), revision=2, author=ANN
    ).settled
    assert _standing(
        policy, edit, (BOB, "approve", 2), revision=2, author=ANN
    ) == Standing(APPROVED, (BOB,), 2)


def test_under_four_eyes_who_edited_a_write_is_excluded_from_rejecting_it_too() -> None:
    policy = Policy(four_eyes=True)
    edit: Signed = (ANN, "edit", 2)
    assert (
        _standing(policy, edit, (ANN, "reject", 2), revision=2, author=ANN)
        == Standing()
    )
    assert (
        _standing(policy, edit, (ANN, "reject", 3), revision=3, author=ANN)
        == Standing()
    ), "on a new base too"
    assert _standing(
        policy, edit, (BOB, "reject", 2), revision=2, author=ANN
    ) == Standing(REJECTED, (BOB,), 2)
    assert _standing(policy, (ANN, "reject", 1), revision=1).verdict == REJECTED, (
        "what the node proposed is not his"
    )


def test_under_four_eyes_rejecting_ones_own_edit_does_not_count_after_a_later_edit() -> (
    None
):
    signed: list[Signed] = [(ANN, "edit", 2), (ANN, "reject", 2), (BOB, "edit", 3)]
    assert (
        _standing(Policy(four_eyes=True), *signed, revision=3, author=BOB) == Standing()
    )
    again: list[Signed] = [*signed, (ANN, "approve", 3)]
    assert _standing(
        Policy(four_eyes=True), *again, revision=3, author=BOB
    ) == Standing(APPROVED, (ANN,), 4)


def test_under_all_or_nothing_one_settled_rejection_rejects_every_write() -> None:
    held = [Held(ONE, 1), Held(TWO, 1)]
    votes = [Given(ONE, 1, "approve", ANN, 1), Given(TWO, 1, "reject", ANN, 2)]
    apart = judge(held, votes, Policy())
    together = judge(held, votes, Policy(all_or_nothing=True))
    assert [apart[ONE].verdict, apart[TWO].verdict] == [APPROVED, REJECTED]
    assert [together[ONE], together[TWO]] == [
        Standing(REJECTED, (ANN,), 2, cause=TWO),
        Standing(REJECTED, (ANN,), 2),
    ]


NEEDS = Policy(needs={"mail": ["payout"], "note": ["mail"]})
PAYOUT = Held(ONE, 1, channel="payout")
MAIL = Held(TWO, 1, channel="mail")
NOTE = Held(THREE, 1, channel="note")


def test_a_write_is_rejected_with_the_one_that_it_needs() -> None:
    rejected = [Given(ONE, 1, "reject", ANN, 1)]
    standings = judge([PAYOUT, MAIL], rejected, NEEDS)
    assert standings[ONE] == Standing(REJECTED, (ANN,), 1)
    assert standings[TWO] == Standing(REJECTED, (ANN,), 1, cause=ONE)


def test_an_approval_does_not_save_a_write_whose_need_is_rejected() -> None:
    votes = [Given(TWO, 1, "approve", BOB, 1), Given(ONE, 1, "reject", ANN, 2)]
    assert judge([PAYOUT, MAIL], votes, NEEDS)[TWO].verdict == REJECTED


def test_what_needs_a_write_that_was_rejected_with_another_is_rejected_too() -> None:
    rejected = [Given(ONE, 1, "reject", ANN, 1)]
    # In any order of the writes.
    standings = judge([NOTE, MAIL, PAYOUT], rejected, NEEDS)
    assert standings[THREE] == Standing(REJECTED, (ANN,), 1, cause=TWO)


def test_the_first_of_several_rejections_rejects_the_writes_that_need_it() -> None:
    other = Held(UUID(int=9), 1, channel="payout")
    rejected = [
        Given(other.write, 1, "reject", ANN, 1),
        Given(ONE, 1, "reject", BOB, 2),
    ]
    # A later rejection does not change who settled the mail.
    assert judge([PAYOUT, MAIL, other], rejected, NEEDS)[TWO] == Standing(
        REJECTED, (ANN,), 1, cause=other.write
    )


def test_a_write_that_others_need_stays_when_one_of_them_is_rejected() -> None:
    rejected = [Given(TWO, 1, "reject", ANN, 1)]
    standings = judge([PAYOUT, MAIL], rejected, NEEDS)
    assert not standings[ONE].settled


def test_a_write_that_needs_what_nobody_proposed_stands_alone() -> None:
    approved = [Given(TWO, 1, "approve", ANN, 1)]
    assert judge([MAIL], approved, NEEDS)[TWO].verdict == APPROVED


def _gated(**policy: Any) -> Run:
    """A run that waits at a gate with this policy, for one letter."""
    flow = graph("verdicts")

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"], **policy))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return advanced(flow)


@pytest.fixture
def two(people: cast.People) -> tuple[User, User]:
    return run_actions.reviewer(people.reviewer), run_actions.reviewer(
        people.second_reviewer
    )


@pytest.mark.django_db(transaction=True)
def test_a_gate_for_two_people_does_not_open_for_one_of_them_twice(
    two: tuple[User, User],
) -> None:
    rita, ravi = two
    run = _gated(quorum=2)
    for _ in range(2):
        sign(run, rita, ["approve"])
        run = runs.advance(run.id)
        assert run.status == Status.PAUSED
        assert state(run)["letter"] == ""
    sign(run, ravi, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "proposed"


@pytest.mark.django_db(transaction=True)
def test_an_edit_takes_the_signatures_of_the_revision_before_it_away(
    two: tuple[User, User],
) -> None:
    rita, ravi = two
    run = _gated(quorum=2)
    sign(run, rita, ["approve"])
    sign(run, ravi, [("edit", "better")])
    assert runs.advance(run.id).status == Status.PAUSED
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "better"


@pytest.mark.django_db(transaction=True)
def test_under_four_eyes_who_edited_needs_somebody_else_to_approve_it(
    two: tuple[User, User],
) -> None:
    rita, ravi = two
    run = _gated(four_eyes=True)
    sign(run, rita, [("edit", "mine")])
    assert runs.advance(run.id).status == Status.PAUSED
    sign(run, ravi, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "mine"


def test_a_deadline_settles_alone_whatever_the_quorums() -> None:
    policy = Policy(quorum=3, reject_quorum=3)
    for verdict, settled in (("reject", "rejected"), ("approve", "approved")):
        late = Given(ONE, 1, verdict, None, 9, by_deadline=True)
        standing = judge([Held(ONE, 1)], [late], policy)[ONE]
        assert standing == Standing(settled, (None,), 9)


def test_a_deadlines_approval_counts_for_its_revision_and_its_rejection_for_all() -> (
    None
):
    for verdict, settled in (("reject", "rejected"), ("approve", "")):
        late = Given(ONE, 1, verdict, None, 9, by_deadline=True)
        assert judge([Held(ONE, 2)], [late], Policy())[ONE].verdict == settled


def test_one_rejection_of_two_does_not_turn_a_deadlines_approval() -> None:
    rita = Given(ONE, 1, "reject", 1, 3)
    late = Given(ONE, 1, "approve", None, 9, by_deadline=True)
    policy = Policy(reject_quorum=2)
    assert judge([Held(ONE, 1)], [rita, late], policy)[ONE].verdict == "approved"


@pytest.mark.parametrize(
    ("pairs", "counting"),
    [
        # Who decided, and for whom.
        ([(BOB, ANN), (ANN, None)], (ANN,)),
        ([(BOB, ANN), (CARL, ANN)], (CARL,)),
        ([(BOB, ANN), (BOB, CARL)], (BOB,)),
        ([(BOB, ANN), (CARL, None)], (BOB, CARL)),
        ([(BOB, ANN), (ANN, CARL)], (ANN,)),
    ],
)
def test_nobody_counts_by_themselves_and_through_another(
    pairs: list[tuple[int, int | None]], counting: tuple[int, ...]
) -> None:
    decisions: list[Given] = []
    for seq, (by, delegator) in enumerate(pairs, start=1):
        decisions.append(Given(ONE, 1, "approve", by, seq, delegator=delegator))
    standing = judge([Held(ONE, 1)], decisions, Policy(quorum=3))[ONE]
    assert standing.by == counting


def test_an_edit_is_not_approved_for_its_author() -> None:
    policy = Policy(four_eyes=True)
    decisions = [Given(ONE, 2, "approve", BOB, 1, delegator=ANN)]
    standing = judge([Held(ONE, 2, author=ANN)], decisions, policy)[ONE]
    assert standing.by == ()


def test_a_veto_keeps_an_approval_open_until_the_next_one() -> None:
    signed: list[Signed] = [(ANN, "approve", 1), (None, "veto", 1)]
    assert _standing(Policy(), *signed) == Standing("", (ANN,), 0, vetoed=True)
    again = _standing(Policy(), *signed, (BOB, "approve", 1))
    assert again == Standing(APPROVED, (ANN, BOB), 3)
    assert _standing(Policy(), *signed, (ANN, "approve", 1)).seq == 3


def test_a_veto_of_an_older_revision_says_nothing_of_a_newer_one() -> None:
    signed: list[Signed] = [(ANN, "approve", 1), (None, "veto", 1), (ANN, "edit", 2)]
    assert _standing(Policy(), *signed, revision=2) == Standing(APPROVED, (ANN,), 3)


def test_after_a_veto_a_rejection_rejects_and_approves_nothing() -> None:
    signed: list[Signed] = [(ANN, "approve", 1), (None, "veto", 1), (BOB, "reject", 1)]
    assert _standing(Policy(), *signed).verdict == REJECTED
    assert not _standing(Policy(reject_quorum=2), *signed).settled


def test_what_a_deadline_approved_does_not_count_once_it_is_vetoed() -> None:
    approved = Given(ONE, 1, "approve", None, 1, by_deadline=True)
    vetoed = Given(ONE, 1, "veto", None, 2)
    assert judge([Held(ONE, 1)], [approved, vetoed], Policy())[ONE].verdict == ""
    rejected = Given(ONE, 1, "reject", None, 3, by_deadline=True)
    standing = judge([Held(ONE, 1)], [approved, vetoed, rejected], Policy())[ONE]
    assert standing.verdict == REJECTED


def test_an_automatic_policy_counts_as_one_and_a_rejection_beats_it() -> None:
    policy = Policy(quorum=2, reject_quorum=2)
    signed: list[Signed] = [(AUTOMATIC, "approve", 1)]
    assert _standing(policy, *signed).by == (AUTOMATIC,)
    assert _standing(policy, *signed, (ANN, "approve", 1)).verdict == APPROVED
    beaten = [*signed, (BOB, "reject", 1), (ANN, "approve", 1)]
    assert not _standing(policy, *beaten).settled
    # It stays beaten, whatever that person thinks of it later.
    assert _standing(policy, *beaten, (BOB, "approve", 1)).by == (ANN, BOB)
