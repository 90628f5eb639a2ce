"""Jobs of Dagster that end after asking, and go on in another run once people signed."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.bridges import Office

dagster = pytest.importorskip("dagster", reason="the extra `dagster` is not installed")

from orchestrator.bridges.dagster import (  # noqa: E402
    SIGNED,
    WAITING,
    paused_call,
    root_of,
)
from tests.support.dagster_shop import Shop  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop(office: Office, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(office, tmp_path)
    yield shop
    shop.instance.dispose()


def failure_of(result: Any) -> str:
    [event] = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    error = event.event_specific_data.user_failure_data
    return str(error.description if error else event.event_specific_data.error)


def test_a_job_goes_on_after_a_yes_in_a_run_of_its_own(
    office: Office, shop: Shop
) -> None:
    for number, amount in (("INV-1", "10.00"), ("INV-2", "20.00"), ("INV-3", "30.00")):
        assert shop.ask(number, amount).success
    first, second, third = office.asked(3)
    assert shop.tick() == []
    shop.restart()
    office.decide(first, "approve")
    office.decide(second, "edit", value={"invoice": "INV-2", "amount": "19.00"})
    office.decide(third, "reject", reason="twice")
    requests = {request.run_key: request for request in shop.tick()}
    results = []
    for asked in (first, second, third):
        results.append(shop.launch(requests[str(asked.run.id)]))
    assert [result.success for result in results] == [True, True, False]
    assert failure_of(results[2]) == "twice"
    assert sorted(shop.paid) == ["INV-1 10.00", "INV-2 19.00"]
    assert office.outcomes() == ["done", "done", None]
    assert shop.tick() == []
    waiting = [run.tags.get(WAITING) for run in shop.instance.get_runs()]
    assert set(waiting) == {None, "no more"}


def test_a_tick_that_was_lost_comes_again_under_the_same_key(
    office: Office, shop: Shop
) -> None:
    shop.ask("INV-1", "10.00")
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    [lost] = shop.tick()
    shop.restart()
    [again] = shop.tick()
    assert again.run_key == lost.run_key == str(asked.run.id)
    assert shop.launch(again).success
    assert "another run" in failure_of(shop.launch(lost))
    assert shop.paid == ["INV-1 10.00"]


def test_an_answer_that_was_lost_asks_no_second_question(
    office: Office, tmp_path: Path
) -> None:
    shop = Shop(office, tmp_path, client=office.client_that_loses(1))
    assert shop.ask("INV-1", "10.00").success
    assert len(office.asked()) == 1
    shop.instance.dispose()


def test_a_run_asks_about_no_other_arguments_than_it_did(
    office: Office, shop: Shop
) -> None:
    @dagster.job
    def twice() -> None:
        shop.paused.ask(shop.invoice.alias("cheap")())
        shop.paused.ask.alias("again")(shop.invoice.alias("dear")())

    cheap = {"config": {"invoice": "INV-1", "amount": "10.00"}}
    dear = {"config": {"invoice": "INV-1", "amount": "99.00"}}
    result = twice.execute_in_process(
        run_config={"ops": {"cheap": cheap, "dear": dear}},
        instance=shop.instance,
        raise_on_error=False,
    )
    assert "KeyConflict" in failure_of(result)
    assert len(office.asked()) == 1


def test_a_run_that_is_executed_again_is_known_by_the_first() -> None:
    again = dagster.DagsterRun(
        "propose", run_id="b", root_run_id="a", parent_run_id="a"
    )
    assert root_of(again) == "a"


def test_a_run_that_is_executed_again_makes_no_call_that_was_done(
    office: Office, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.ask("INV-1", "10.00")
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    [request] = shop.tick()
    first = shop.launch(request)
    monkeypatch.setattr(
        "orchestrator.bridges.dagster.root_of",
        lambda run: first.run_id if SIGNED in run.tags else run.run_id,
    )
    assert "done before" in failure_of(shop.launch(request))
    assert shop.paid == ["INV-1 10.00"]


def test_a_run_that_no_sensor_started_runs_nothing(office: Office, shop: Shop) -> None:
    shop.ask("INV-1", "10.00")
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    [request] = shop.tick()
    by_hand = dagster.RunRequest(run_config=request.run_config)
    assert "another run" in failure_of(shop.launch(by_hand))
    other = office.client.ask(
        title="Harmless",
        items=[{"id": "call", "value": {"invoice": "INV-9", "amount": "99.00"}}],
        reviewers=["group:payers"],
    )
    [_, harmless] = office.asked(2)
    office.decide(harmless, "approve")
    config = {"ops": {"pay": {"config": {"approval": other.id}}}}
    lie = dagster.RunRequest(run_config=config, tags={SIGNED: other.id})
    assert failure_of(shop.launch(lie)) == "it is the approval of another call"
    assert shop.paid == []


def test_a_call_of_the_same_name_elsewhere_takes_nothing_of_it(
    office: Office, shop: Shop
) -> None:
    salaries: list[str] = []

    def pay(invoice: str, amount: Decimal) -> None:
        salaries.append(invoice)

    paused = paused_call(office.client, pay, reviewers=["group:payers"])

    @dagster.job
    def pay_salaries() -> None:
        paused.run()

    shop.ask("INV-1", "10.00")
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    context = dagster.build_sensor_context(instance=shop.instance)
    assert paused.sensor_of(pay_salaries).evaluate_tick(context).run_requests == []
    [request] = shop.tick()
    shop.go_on = pay_salaries
    assert failure_of(shop.launch(request)) == "it is the approval of another call"
    assert salaries == []


def test_two_calls_of_one_function_with_names_share_no_approval(
    office: Office, shop: Shop
) -> None:
    def pay(invoice: str, amount: str) -> str:
        return invoice

    policy: Any = {"reviewers": ["group:payers"]}
    early = paused_call(office.client, pay, name="pay_early", **policy)
    late = paused_call(office.client, pay, name="pay_late", **policy)

    @dagster.job
    def propose() -> None:
        arguments = shop.invoice()
        early.ask(arguments)
        late.ask(arguments)

    shop.propose = propose
    assert shop.ask("INV-1", "10.00").success
    [first, second] = office.asked(2)
    assert first.run.key != second.run.key
    assert {first.items[0].label, second.items[0].label} == {"pay_early", "pay_late"}


def test_a_long_name_is_known_again(office: Office, shop: Shop) -> None:
    paused = _paused_with_a_long_name(office)

    @dagster.op
    def arguments() -> dict[str, Any]:
        return {"invoice": "INV-1"}

    @dagster.job
    def propose() -> None:
        paused.ask(arguments())

    @dagster.job
    def go_on() -> None:
        paused.run()

    assert propose.execute_in_process(instance=shop.instance).success
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    shop.sensor, shop.go_on = paused.sensor_of(go_on), go_on
    [request] = shop.tick()
    assert shop.launch(request).success


def _paused_with_a_long_name(office: Office) -> Any:
    def pay(invoice: str) -> str:
        return invoice

    pay.__name__ = pay.__qualname__ = "p" * 180
    return paused_call(office.client, pay, reviewers=["group:payers"])
