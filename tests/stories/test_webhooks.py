"""A worker is killed while a receiver has a message in hand: it arrives again."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from approvals.list_columns import SEND_NOTICES
from approvals.models import WebhookDelivery
from checkpoints.queue import jobs
from tests.support import notices
from tests.support.processes import until, worker
from tests.support.receivers import receiving
from tests.support.rows import a_request, a_run

ALLOWED = {
    "COUNTERSIGN_WEBHOOKS_OVER_HTTP": "true",
    "COUNTERSIGN_WEBHOOKS_TO_PRIVATE_ADDRESSES": "true",
}


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_before_it_has_recorded_sends_again_under_the_same_id(
    tmp_path: Path, configure: Any
) -> None:
    configure(WEBHOOKS_OVER_HTTP=True, WEBHOOKS_TO_PRIVATE_ADDRESSES=True)
    log = tmp_path / "worker.log"
    with receiving() as receiver:
        notices.webhook_to(receiver)
        a_request(a_run(), "user:rita")
        jobs.add_job(SEND_NOTICES, name=SEND_NOTICES)
        with worker(log, **ALLOWED) as first:

            def kill() -> None:
                os.killpg(first.pid, signal.SIGKILL)
                # Nobody is left who could read the answer.
                time.sleep(2)

            receiver.before_answer = kill
            until(lambda: receiver.received, what=f"a message, see {log}")
            first.wait(30)
        receiver.before_answer = lambda: None
        assert WebhookDelivery.objects.get().status == "waiting"
        with worker(log, **ALLOWED):
            delivered = WebhookDelivery.objects.filter(status="delivered")
            until(delivered.exists, seconds=90, what=f"the second one, see {log}")
    assert len(receiver.received) == 2
    assert len({received.id for received in receiver.received}) == 1
