"""The page that pins a checkpoint and takes the pin away, and what the run's page says
of it.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints import retention
from checkpoints.models import AuditLine, Checkpoint, Pin, Run
from checkpoints.retention import holds
from tests.support.cast import People
from tests.support.histories import long_run, policy, pruned, seqs
from tests.support.page_people import browse

__all__ = ["browse"]
pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[[User], Client]


@pytest.fixture
def run() -> Run:
    return long_run("short", "abcd")


def url(run: Run, seq: int) -> str:
    return reverse("pin", args=[Checkpoint.objects.get(run=run, seq=seq).id])


def page(client: Client, run: Run, seq: int) -> str:
    return client.get(reverse("run", args=[run.id]), {"at": seq}).content.decode()


def test_a_pinned_checkpoint_stays_and_the_run_page_says_who_pinned_it_and_why(
    run: Run, people: People, browse: Browse
) -> None:
    stella = browse(people.steward)
    address = url(run, 2)
    assert f'href="{address}">Pin checkpoint 2<' in page(stella, run, 2)
    assert "No clean-up removes it" in stella.get(address).content.decode()
    answer: Any = stella.post(
        address, {"do": "pin", "reason": "<b>the auditors</b> look at it"}
    )
    assert answer.status_code == 302
    assert answer.url == f"{reverse('run', args=[run.id])}?at=2"
    html = page(stella, run, 2)
    assert "&lt;b&gt;the auditors&lt;/b&gt; look at it" in html
    assert f'href="{address}">Unpin checkpoint 2<' in html
    assert 'data-test="pinned"' not in page(stella, run, 1)
    line = AuditLine.objects.get(kind="checkpoint_pinned")
    assert line.actor == people.steward
    assert line.run == run.id
    assert line.facts["reason"] == "<b>the auditors</b> look at it"
    pruned(policy("short", keep_last=1))
    assert seqs(run) == [2, 4]


def test_the_second_of_two_concurrent_pins_reads_that_nothing_changed(
    run: Run, people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = holds.pin_or_find

    def second(checkpoint: Any, **options: Any) -> Any:
        pin(checkpoint, by=None, reason="the first")
        return pin(checkpoint, **options)

    monkeypatch.setattr(holds, "pin_or_find", second)
    stella = browse(people.steward)
    answer = stella.post(url(run, 2), {"do": "pin", "reason": "mine"}, follow=True)
    assert b"Nothing was changed: it was already pinned." in answer.content
    assert Pin.objects.get().reason == "the first"


def test_an_unpinned_checkpoint_may_go_and_the_log_says_why(
    run: Run, people: People, browse: Browse
) -> None:
    stella = browse(people.steward)
    address = url(run, 2)
    pinned = retention.pin(
        Checkpoint.objects.get(run=run, seq=2).id, by=None, reason="for Rita"
    )
    html = stella.get(address).content.decode()
    assert "for Rita" in html
    assert "may remove it" in html
    assert (
        stella.post(address, {"do": "unpin", "reason": "she is done"}).status_code
        == 302
    )
    pinned.refresh_from_db()
    assert pinned.by is None
    assert pinned.released_by == people.steward
    assert (
        AuditLine.objects.get(kind="checkpoint_unpinned").facts["reason"]
        == "she is done"
    )
    pruned(policy("short", keep_last=1))
    assert seqs(run) == [4]
    assert (
        stella.get(address).status_code
        == stella.post(address, {"do": "pin", "reason": "x"}).status_code
        == 404
    )


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"do": "pin", "reason": "  "}, "Enter a reason"),
        ({"do": "pin"}, "Enter a reason"),
        ({"reason": "because"}, "Choose pin or unpin"),
        ({"do": "burn", "reason": "because"}, "Choose pin or unpin"),
        ({"do": "pin", "reason": "x" * 1001}, "Nothing was changed"),
        ({"do": "pin", "reason": "a\x00b"}, "Nothing was changed"),
    ],
)
def test_what_is_not_clear_is_refused_and_changes_nothing(
    form: dict[str, str], says: str, run: Run, people: People, browse: Browse
) -> None:
    answer = browse(people.steward).post(url(run, 2), form)
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert not Pin.objects.exists()


def test_what_was_done_meanwhile_is_said_and_not_done_twice(
    run: Run, people: People, browse: Browse
) -> None:
    stella = browse(people.steward)
    address = url(run, 2)
    first = retention.pin(
        Checkpoint.objects.get(run=run, seq=2).id, by=None, reason="mine"
    )
    answer = stella.post(address, {"do": "pin", "reason": "mine too"}, follow=True)
    assert "it was already pinned" in answer.content.decode()
    assert Pin.objects.get() == first
    assert retention.unpin(first.checkpoint, by=None)
    answer = stella.post(address, {"do": "unpin", "reason": "over"}, follow=True)
    assert "it was already unpinned" in answer.content.decode()
    assert AuditLine.objects.filter(kind="checkpoint_unpinned").count() == 1


def test_who_may_not_manage_retention_may_look_and_not_pin(
    run: Run, people: People, browse: Browse
) -> None:
    olive = browse(people.starter)
    address = url(run, 2)
    assert address not in page(olive, run, 2)
    html = olive.get(address).content.decode()
    assert "You may look, but not pin" in html
    assert "<form" not in html.split("<main")[1].split("</main>")[0]
    assert olive.post(address, {"do": "pin", "reason": "because"}).status_code == 403
    assert AuditLine.objects.get(kind="refused_pin").run == run.id
    nobody = browse(people.nobody)
    assert (
        nobody.get(address).status_code
        == nobody.post(address, {"do": "pin", "reason": "x"}).status_code
        == 404
    )
    assert Client().get(address).status_code == 302
    assert not Pin.objects.exists()
