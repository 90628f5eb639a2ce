"""Workflows of DBOS that wait until people have signed, in a program that is killed."""

from pathlib import Path

import pytest

from orchestrator import runs
from tests.support.bridges import PATIENCE, Office
from tests.support.processes import until
from tests.support.shop_processes import paid, program

pytest.importorskip("dbos", reason="the extra `dbos` is not installed")

pytestmark = pytest.mark.django_db(transaction=True)


def test_workflows_wait_through_a_crash_and_pay_what_was_signed(
    office: Office, tmp_path: Path
) -> None:
    with program(office, tmp_path) as shop:
        shop("start", "one", "INV-1", "10.00")
        [first] = office.asked(1)
        shop("start", "two", "INV-2", "20.00")
        [_, second] = office.asked(2)
        shop("start", "three", "INV-3", "30.00")
        [_, _, third] = office.asked(3)
        shop("false_message", "one", str(first.run.id))
    office.decide(first, "approve")
    office.decide(second, "edit", value={"invoice": "INV-2", "amount": "19.00"})
    office.decide(third, "reject", reason="twice")
    assert paid(tmp_path) == []
    with program(office, tmp_path) as shop:
        assert shop("result", "one") == "INV-1 paid"
        assert shop("result", "two") == "INV-2 paid"
        assert shop("result", "three") == "Rejected: twice"
        assert shop("start", "one", "INV-1", "99.00") == "one"
        assert shop("result", "one") == "INV-1 paid"
    assert paid(tmp_path) == ["INV-1 10.00", "INV-2 19.00"]
    assert office.outcomes() == ["done", "done", None]


@pytest.mark.parametrize("decided_again", [True, False])
def test_what_is_signed_when_the_step_begins_is_what_runs(
    office: Office, tmp_path: Path, *, decided_again: bool
) -> None:
    (tmp_path / "crash").touch()
    with program(office, tmp_path) as shop:
        shop("start", "one", "INV-1", "10.00")
        [asked] = office.asked(1)
        office.decide(asked, "approve")
        until(lambda: not (tmp_path / "crash").exists(), seconds=PATIENCE)
    runs.rewind(asked.run.id, f"{asked.run.key}:initial")
    [again] = office.asked(1)
    cheaper = {"invoice": "INV-1", "amount": "8.00"}
    if decided_again:
        office.decide(again, "edit", value=cheaper)
    with program(office, tmp_path) as shop:
        if not decided_again:
            shop("start", "two", "INV-2", "20.00")
            office.asked(2)
            assert paid(tmp_path) == []
            office.decide(again, "edit", value=cheaper)
        assert shop("result", "one") == "INV-1 paid"
    assert paid(tmp_path) == ["INV-1 8.00"]
    assert office.outcomes()[0] == "done"


def test_a_lost_answer_and_other_arguments_ask_no_second_question(
    office: Office, tmp_path: Path
) -> None:
    loss = tmp_path / "loss"
    loss.touch()
    with program(office, tmp_path) as shop:
        shop("start", "one", "INV-1", "10.00")
        until(lambda: not loss.exists(), seconds=PATIENCE)
        assert shop("start", "one", "INV-1", "99.00") == "one"
        [asked] = office.asked(1)
        office.decide(asked, "approve")
        assert shop("result", "one") == "INV-1 paid"
    assert len(office.asked(1)) == 1
    assert paid(tmp_path) == ["INV-1 10.00"]


def test_a_message_wakes_a_workflow_and_decides_nothing(
    office: Office, tmp_path: Path
) -> None:
    with program(office, tmp_path, pause=600) as shop:
        shop("start", "shop/one", "INV-1", "10.00")
        [asked] = office.asked(1)
        shop("false_message", "shop/one", str(asked.run.id))
        office.decide(asked, "approve")
        shop("wake_up", str(asked.run.id))
        assert shop("result", "shop/one") == "INV-1 paid"
        forked = shop("fork", "shop/one", 3)
        assert shop("result", forked).startswith("Rejected: a fork asks for itself")
    assert paid(tmp_path) == ["INV-1 10.00"]


def test_a_workflow_of_the_same_name_in_another_database_asks_for_itself(
    office: Office, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with program(office, tmp_path) as shop:
        shop("start", "one", "INV-1", "10.00")
        [asked] = office.asked(1)
        office.decide(asked, "approve")
        assert shop("result", "one") == "INV-1 paid"
    with program(office, other) as shop:
        shop("start", "one", "INV-1", "10.00")
        office.asked(2)
    assert paid(other) == []
