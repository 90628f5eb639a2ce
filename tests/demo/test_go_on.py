"""The demo's own claims in the form that goes on from a checkpoint, as a browser
without scripts sends it.
"""

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from checkpoints import timeline
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from tests.support.page_forms import fields_of

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "CLM-118894"
NEW = "PT50002700000001234567833"


@pytest.fixture
def demo(live_server: Any, settings: Any) -> Run:
    """The small claim of the demo, paid."""
    settings.COUNTERSIGN_DEMO_PAYMENTS_URL = f"{live_server.url}/demo/payments/"
    call_command("demo_data", "--wait", "0", stdout=io.StringIO())
    return runs.advance(runs.get(KEY).id)


@pytest.fixture
def olive(client: Client, demo: Run) -> Client:
    client.force_login(User.objects.get(username="olive"))
    return client


def opened(client: Client, seq: int) -> tuple[str, dict[str, str]]:
    """The address of the page at a checkpoint of the claim, and what its form holds."""
    row = timeline.get_checkpoint(f"{KEY}:at-{seq}")
    path = f"/checkpoints/{row.id}/go-on/"
    return path, fields_of(client.get(path, follow=True).content.decode())


@pytest.mark.parametrize("how", ["fork", "rewind"])
def test_at_each_checkpoint_of_the_demo_the_form_goes_on_where_nobody_types(
    how: str, demo: Run, olive: Client
) -> None:
    for seq in range(demo.head_seq):
        path, fields = opened(olive, seq)
        answer = olive.post(
            path, fields | {"how": how, "shown": how, "reason": "again", "do": "check"}
        )
        assert "Problems" not in answer.content.decode(), seq


def test_the_account_of_the_demo_is_changed_in_the_form_and_nothing_else_is(
    demo: Run, olive: Client
) -> None:
    path, fields = opened(olive, 6)
    answer = olive.post(path, fields | {"s-payout.account": NEW, "do": "go"})
    assert answer.status_code == 302
    new_run = runs.advance(Run.objects.get(origin_checkpoint=path.split("/")[2]).id)
    write = PendingWrite.objects.get(run=new_run)
    before = timeline.head_state(demo.id)["scratch"]["payout"]
    assert write.channel == "payout"
    assert read_value(write, "value") == before | {"account": NEW}
