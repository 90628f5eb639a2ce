"""What happens when you sign: computed from what was chosen, write by write, with the
edited values.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.views.drafted_outcome import Next
from checkpoints.models import Run
from orchestrator.engine import Limit
from tests.support import claims, run_actions
from tests.support.cast import People
from tests.support.review_forms import choose, slip_of

Browse = Callable[[User], Client]
Following = Callable[..., Next]


@pytest.fixture
def two_steps(db: None) -> Iterator[None]:
    eyed = claims.in_two_steps("eyed", four_eyes=True)
    pair = claims.in_two_steps("pair", quorum=2)
    titled = claims.in_two_steps("titled", title="Pay {payout.amount}?")
    whole = claims.in_two_steps("whole", all_or_nothing=True)
    most = {"amount": Limit(at_most="{input.amount}")}
    bounded = claims.in_two_steps("bounded", limits=most, needs=["payout"])
    with claims.registered(claims.in_two_steps(), eyed, pair, titled, whole, bounded):
        yield


@pytest.fixture
def following(two_steps: None, people: People, browse: Browse) -> Following:
    """Return what the page says after these choices; `amount` is what the edit of the
    payout says, `before` what somebody else signed before.
    """

    def after(
        graph: str = "two_steps",
        amount: str = "1800.00",
        before: Any = None,
        **verdicts: str,
    ) -> Next:
        run: Run = claims.paused(f"CLM-{graph}", people.starter, graph=graph)
        if before:
            run_actions.sign(
                run, claims.member(people.second_reviewer, "reviewer"), before
            )
        client = browse(people.reviewer)
        page = client.get(reverse("review", args=[run.id]))
        posted = {**choose(page, **verdicts), "number": "1"}
        if verdicts.get("payout") == "edit":
            posted[f"e-{slip_of(page, 'payout').write}.amount"] = amount
        answer = client.post(
            reverse("draft", args=[run.id]), posted, headers={"X-Fragment": "1"}
        )
        assert answer.status_code == 200
        outcome: Any = client.get(reverse("review", args=[run.id])).context["page"].next
        for line in outcome.now:
            assert line.detail.split(".")[0] in answer.content.decode()
        return outcome  # type: ignore[no-any-return]

    return after


def lines_of(outcome: Next) -> list[tuple[str, str, str]]:
    return [
        (line.node, line.text, line.detail)
        for _, lines in outcome.then
        for line in lines
        if line.node
    ]


def test_with_nothing_chosen_nothing_happens_yet(
    two_steps: None, people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter, graph="two_steps")
    html = (
        browse(people.reviewer).get(reverse("review", args=[run.id])).content.decode()
    )
    assert "Nothing yet. The run waits until each write is settled." in html


def test_with_the_letter_rejected_the_node_that_sends_it_may_find_nothing_to_do(
    following: Following,
) -> None:
    outcome = following(payout="approve", letter="reject")
    assert [(line.text, line.detail) for line in outcome.now] == [
        ("Pay EUR 1900.00", "Approved. Amount: 1900.00."),
        ("Send the letter", "Rejected: it does not happen."),
    ]
    transfer, post = lines_of(outcome)
    assert transfer[:2] == ("transfer", "acts outside")
    assert transfer[2].startswith("With: Pay EUR 1900.00.")
    assert post[:2] == ("post", "may find nothing to do")
    assert post[2].startswith("Rejected: Send the letter.")


def test_an_edited_amount_is_what_is_said_to_happen(following: Following) -> None:
    outcome = following(payout="edit", letter="approve")
    assert outcome.now[0].text == "Pay EUR 1800.00"
    assert (
        outcome.now[0].detail
        == "Approved as you edit it. Amount: 1800.00 instead of 1900.00."
    )
    assert "With: Pay EUR 1800.00." in lines_of(outcome)[0][2]


def test_an_edit_that_fits_no_type_is_said_to_be_unsignable(
    following: Following,
) -> None:
    outcome = following(payout="edit", letter="approve", amount="a lot")
    assert outcome.now[0].detail.startswith("Your edit cannot be signed yet")
    assert outcome.then == []
    assert outcome.waits is True


def test_an_edit_beyond_a_limit_is_said_to_be_unsignable(following: Following) -> None:
    # The claim is for 12.50.
    outcome = following("bounded", payout="edit", amount="12.51", letter="approve")
    assert outcome.now[0].detail == (
        "Your edit cannot be signed yet: the edit is outside the limits of its gate: "
        "payout.amount must be at most 12.50"
    )
    assert outcome.then == []


def test_a_write_is_said_to_be_rejected_with_the_one_that_it_needs(
    following: Following,
) -> None:
    outcome = following("bounded", payout="reject", letter="approve")
    assert [(line.text, line.detail) for line in outcome.now] == [
        ("Pay EUR 1900.00", "Rejected: it does not happen."),
        ("Send the letter", "Rejected with what it needs. That is: Pay EUR 1900.00."),
    ]


def test_it_is_said_that_a_rejection_takes_what_others_had_approved(
    following: Following,
) -> None:
    outcome = following("bounded", before=[None, "approve"], payout="reject")
    assert [line.detail for line in outcome.now] == [
        "Rejected: it does not happen.",
        "Rejected with what it needs. That is: Pay EUR 1900.00.",
    ]


def test_an_edit_that_cannot_be_signed_is_named_before_what_it_needs(
    following: Following,
) -> None:
    outcome = following("bounded", payout="edit", amount="a lot", letter="reject")
    assert outcome.now[0].detail.startswith("Your edit cannot be signed yet")


def test_with_a_write_left_open_the_run_waits(following: Following) -> None:
    outcome = following(payout="approve")
    assert [line.text for line in outcome.now] == ["Pay EUR 1900.00"]
    assert outcome.then == []
    assert outcome.waits is True


def test_with_all_rejected_nothing_follows(following: Following) -> None:
    outcome = following(payout="reject", letter="reject")
    assert [[line.text for line in lines] for _, lines in outcome.then] == [
        ["Nothing follows on this path"]
    ]


def test_under_four_eyes_an_edit_waits_for_somebody_else(following: Following) -> None:
    outcome = following("eyed", payout="edit", letter="approve")
    assert outcome.now[0].detail.startswith(
        "Your edit is proposed; somebody else must sign it."
    )
    assert outcome.waits


def test_one_missing_signature_of_two_is_reported(following: Following) -> None:
    outcome = following("pair", payout="approve", letter="approve")
    assert outcome.now[0].detail.startswith("1 of 2 signatures; it waits for 1 more.")
    assert outcome.waits


def test_all_or_nothing_one_rejection_takes_the_others_along(
    following: Following,
) -> None:
    outcome = following("whole", letter="reject")
    assert [(line.text, line.detail) for line in outcome.now] == [
        ("Pay EUR 1900.00", "Rejected with it: all or nothing."),
        ("Send the letter", "Rejected: it does not happen."),
    ]


@pytest.mark.parametrize(
    ("amount", "comes_back"), [("1800.00", True), ("1900.00", False)]
)
def test_an_edit_that_changes_the_title_is_said_to_bring_back_what_others_signed(
    amount: str, comes_back: bool, following: Following
) -> None:
    outcome = following(
        "titled", amount=amount, before=[None, "approve"], payout="edit"
    )
    warning = (
        "Send the letter",
        "Your edit changes the title or the facts beside it. Signatures that no longer count: 1.",
    )
    assert (warning in [(line.text, line.detail) for line in outcome.now]) is comes_back
    assert outcome.waits is comes_back
