"""What a signature is bound to, and that nobody changes a decision afterwards."""

from collections.abc import Iterator
from typing import Any

import pytest

from approvals import reviews
from approvals.models import Decision
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate, Limit, Write
from orchestrator.engine.errors import (
    InvalidValue,
    StaleProposal,
    TamperedRow,
    WrongStatus,
)
from tests.support import cast, claims, run_actions
from tests.support.decisions import paused_run
from tests.support.run_actions import log, pending, request, sign
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_write_that_was_changed_behind_its_hash_cannot_be_signed(
    people: cast.People,
) -> None:
    run = paused_run()
    rita = run_actions.reviewer(people.reviewer)
    PendingWrite.objects.filter(run=run).update(value=pack_json("forged"))
    with pytest.raises(TamperedRow):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()


def test_a_request_that_is_marked_as_settled_without_the_decisions_for_it_applies_nothing(
    people: cast.People,
) -> None:
    run = paused_run()
    open_request = request(run)
    open_request.status = "settled"
    open_request.outcome = "approved"
    open_request.save()
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run_actions.state(run)["letter"] == ""


def test_a_rejection_without_the_reason_that_is_asked_for_is_refused(
    people: cast.People,
) -> None:
    run = paused_run()
    rita = run_actions.reviewer(people.reviewer)
    item = {
        "write": str(pending(run)[0].write),
        "hash": pending(run)[0].hash,
        "verdict": "reject",
    }
    for reason in ("", "  "):
        with pytest.raises(InvalidValue, match="reason"):
            reviews.sign(run.id, [{**item, "reason": reason}], by=rita)
    assert not Decision.objects.exists()
    reviews.sign(run.id, [{**item, "reason": "not ours"}], by=rita)
    assert runs.advance(run.id).status == Status.REJECTED


@pytest.mark.parametrize(
    "status", [Status.COMPLETED, Status.CANCELLED, Status.TAMPERED, Status.INCOMPATIBLE]
)
def test_nothing_is_decided_in_a_run_that_is_over_or_refused(
    status: str, people: cast.People
) -> None:
    run = paused_run()
    rita = run_actions.reviewer(people.reviewer)
    Run.objects.filter(id=run.id).update(status=status)
    with pytest.raises(WrongStatus):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()


@pytest.fixture
def bounded(people: cast.People) -> Iterator[Run]:
    """A run that waits for a payout of at most the 12.50 of its claim, and a letter that
    needs it.
    """
    limits = {"amount": Limit(at_most="{input.amount}"), "account": SAME}
    with claims.registered(
        claims.in_two_steps("bounded", limits=limits, needs=["payout"])
    ):
        yield claims.paused("CLM-1", people.starter, graph="bounded")


SAME = Limit(unchanged=True)


def _payout(amount: str, account: str = "DE89") -> tuple[str, dict[str, str]]:
    return "edit", {"amount": amount, "account": account}


def test_an_edit_beyond_a_limit_is_refused_with_each_part_and_changes_nothing(
    bounded: Run, people: cast.People
) -> None:
    with pytest.raises(InvalidValue) as refused:
        sign(bounded, people.reviewer, [_payout("12.51", "DE00"), "approve"])
    assert refused.value.facts["errors"] == [
        {"path": "payout.amount", "reason": "must be at most 12.50"},
        {"path": "payout.account", "reason": "must stay as it was proposed"},
    ]
    assert not Decision.objects.exists()
    assert [row.revision for row in pending(bounded)] == [1, 1]


def test_small_edits_lead_no_further_than_a_large_one(people: cast.People) -> None:
    limits = {"amount": Limit(at_most="{input.amount}"), "account": SAME}
    with claims.registered(claims.in_two_steps("chained", limits=limits, quorum=2)):
        run = claims.paused("CLM-1", people.starter, graph="chained")
        other = claims.member(people.second_reviewer, "reviewer")
        sign(run, people.reviewer, [_payout("12.00"), None])
        with pytest.raises(InvalidValue, match=r"amount must be at most 12\.50"):
            sign(run, other, [_payout("13.00"), None])
        with pytest.raises(InvalidValue, match="account must stay"):
            sign(run, other, [_payout("12.00", "DE00"), None])
        # What the node proposed is within every limit, also after an edit.
        sign(run, other, [_payout("1900.00"), None])
        assert [row.revision for row in pending(run)] == [3, 1]


def test_the_answers_of_a_fork_keep_the_limits(
    bounded: Run, people: cast.People
) -> None:
    answers = {"propose": {"payout": {"amount": "13.00", "account": "DE89"}}}
    point = timeline.get_checkpoint(f"{bounded.key}:step-1")
    with pytest.raises(InvalidValue, match="outside the limits"):
        runs.fork(point.id, answers=answers, by=people.reviewer)


def test_who_rejects_a_write_rejects_what_needs_it(
    bounded: Run, people: cast.People
) -> None:
    receipt = sign(bounded, people.reviewer, ["reject", "approve"])
    assert [line["settled"] for line in receipt.lines] == ["rejected", "rejected"]
    assert request(bounded).outcome == "rejected"
    run = runs.advance(bounded.id)
    assert run.status == Status.REJECTED
    assert run_actions.state(run)["letter"] == ""
    assert verify_run(run.id) == []


def test_a_write_that_others_need_is_applied_without_them(
    bounded: Run, people: cast.People
) -> None:
    sign(bounded, people.reviewer, [_payout("12.50"), "reject"])
    run = runs.advance(bounded.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["payout"]["amount"] == "12.50"
    assert run_actions.state(run)["letter"] == ""


def _titled(
    title: str, facts: tuple[Fact, ...] = (), *, encrypted: bool = False, **gate: Any
) -> Run:
    """A run whose request has three writes, with what their title and facts say of the
    letter.
    """
    flow = graph("titled", encrypted=encrypted)

    @flow.node(
        effect="human",
        gate=Gate(reviewers=["group:claims"], title=title, facts=facts, **gate),
    )
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "old"), Write("notes", ["a"]), Write("notes", ["b"])]

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return advanced(flow)


def _shown(run: Run) -> list[tuple[int, str, Any]]:
    """Return the revision of each write, why it was made, and the title and facts
    beside it.
    """
    texts = [read_value(row, "shown") for row in pending(run)]
    kept = [
        (text["title"], [fact["value"] for fact in text["facts"]]) for text in texts
    ]
    return [
        (row.revision, row.reason, *text)
        for row, text in zip(pending(run), kept, strict=True)
    ]


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(
    ("title", "facts", "now"),
    [
        ("Send {proposal.letter}?", (), ("Send new?", [])),
        ("Send?", (Fact("Letter", "letter"),), ("Send?", ["new"])),
    ],
)
def test_writes_come_back_when_an_edit_changes_the_texts_beside_them(
    title: str,
    facts: tuple[Fact, ...],
    now: Any,
    encrypted: bool,
    people: cast.People,
    configure: Any,
) -> None:
    configure(ENCRYPTION_KEYS={"one": b"k" * 32})
    run = _titled(title, facts, encrypted=encrypted)
    rita = run_actions.reviewer(people.reviewer)
    other = run_actions.reviewer(people.second_reviewer)
    sign(run, rita, [None, "approve", None])
    seen = [row.hash for row in pending(run)]
    sign(run, other, [("edit", "new"), None, None])
    assert _shown(run) == [(2, "edit", *now), (2, "texts", *now), (2, "texts", *now)]
    assert request(run).status == "open", "an approval counts for what its signer saw"
    assert log(run)[-3:] == ["decision_signed", "texts_changed", "texts_changed"]
    stale = [
        {"write": str(pending(run)[1].write), "hash": seen[1], "verdict": "approve"}
    ]
    with pytest.raises(StaleProposal) as refused:
        reviews.sign(run.id, stale, by=rita)
    assert refused.value.facts["events"][0]["why"] == "texts"
    sign(run, rita, [None, "approve", "approve"])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert verify_run(run.id) == []


def test_a_rejected_write_stays_rejected_when_the_texts_beside_it_change(
    people: cast.People,
) -> None:
    run = _titled("Send {proposal.letter}?")
    rita = run_actions.reviewer(people.reviewer)
    sign(run, rita, [None, "reject", None])
    sign(run, rita, [("edit", "new"), None, "reject"])
    assert [one[:2] for one in _shown(run)] == [
        (2, "edit"),
        (1, "proposal"),
        (1, "proposal"),
    ]
    assert request(run).status == "settled"


@pytest.mark.parametrize(
    "title", ["Send?", "Send {input.number}?", "Add {proposal.notes}?"]
)
def test_an_edit_that_changes_no_text_brings_nothing_back(
    title: str, people: cast.People
) -> None:
    run = _titled(title)
    rita = run_actions.reviewer(people.reviewer)
    sign(run, rita, [None, "approve", "approve"])
    sign(run, rita, [("edit", "new"), None, None])
    assert [one[:2] for one in _shown(run)] == [
        (2, "edit"),
        (1, "proposal"),
        (1, "proposal"),
    ]
    assert runs.advance(run.id).status == Status.COMPLETED


def test_what_is_signed_with_an_edit_counts_for_the_texts_that_it_makes(
    people: cast.People,
) -> None:
    run = _titled("Send {proposal.letter}?", quorum=2)
    rita = run_actions.reviewer(people.reviewer)
    receipt = sign(run, rita, [("edit", "new"), "approve", "reject"])
    newest = {str(row.write): row for row in pending(run)}
    assert [(line["result"], line["revision"]) for line in receipt.lines] == [
        ("counted", 2),
        ("counted", 2),
        ("counted", 1),
    ]
    assert [line["hash"] == newest[line["write"]].hash for line in receipt.lines] == [
        True
    ] * 3
    assert [row.revision for row in Decision.objects.order_by("event_seq")] == [2, 2, 1]
    sign(
        run, run_actions.reviewer(people.second_reviewer), ["approve", "approve", None]
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["letter"] == "new"
    assert run_actions.state(run)["notes"] == ["a"]
