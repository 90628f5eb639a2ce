"""What the page of a tampered run says and offers: the first checkpoint that does not
verify, and no way that fails.
"""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from checkpoints import timeline
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from orchestrator.views import run_damage
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.paid_claims import paid

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[..., Client]


def damaged(people: People, seq: int) -> Run:
    """A run of which a checkpoint was altered, as the verification leaves it."""
    run = paid("damaged", people)
    runs.rewind(run.id, f"{run.key}:at-1", by=people.starter, reason="again")
    run = runs.advance(run.id)
    alter(run, seq)
    return Run.objects.get(id=run.id)


def alter(run: Run, seq: int) -> None:
    at = timeline.get_checkpoint(f"{run.key}:at-{seq}")
    tamper(at, took_ms=at.took_ms + 77)
    fault = verify_run(run.id)[0]
    assert locked_run.mark_tampered(run.id, TamperedRow(fault.reason, row=fault.what))


def page(client: Client, run: Run, **query: str) -> str:
    return client.get(reverse("run", args=[run.id]), query).content.decode()


def words(html: str) -> str:
    return re.sub(r"\s+", " ", strip_tags(html))


def test_a_tab_that_cannot_be_opened_says_so_without_names_of_tables(
    people: People, browse: Browse
) -> None:
    run = damaged(people, 2)
    html = page(browse(people.starter), run, at="2")
    refused = html.partition('data-test="refused"')[2].partition("</div>")[0]
    assert "it, or one that it builds on, is not what was written." in words(refused)
    assert "checkpoints_checkpoint" not in refused


def test_a_tampered_run_names_the_first_bad_checkpoint_and_offers_a_fork_of_the_newest_good(
    people: People, browse: Browse
) -> None:
    run = damaged(people, 2)
    html = page(browse(people.starter), run)
    assert "Checkpoint 2 does not match its seal" in words(html)
    assert "0 to 1 are intact." in words(html)
    assert (
        "checkpoints_checkpoint"
        not in html.partition('class="panel problem"')[2].partition("</section>")[0]
    )
    assert "Fork from 1<" in html
    for way in (f"Fork from {run.head_seq}", "Replay from", "Rewind to", "Resume"):
        assert way not in html


def test_the_first_of_two_altered_checkpoints_is_named(
    people: People, browse: Browse
) -> None:
    run = damaged(people, 3)
    tamper(timeline.get_checkpoint(f"{run.key}:at-1"), took_ms=99)
    html = page(browse(people.starter), run)
    assert "Checkpoint 1 does not match its seal" in words(html)
    assert "Checkpoint 3 does not match its seal" not in words(html)
    assert "Fork from 0<" in html


def test_the_fork_that_a_tampered_run_offers_can_be_made(
    people: People, browse: Browse
) -> None:
    run = damaged(people, 2)
    html = page(browse(people.starter), run, at="1")
    assert "Fork from 1" in html
    fork = runs.fork(f"{run.key}:at-1", start=False, by=people.starter)
    assert fork.origin_checkpoint == timeline.get_checkpoint(f"{run.key}:at-1").id


def test_nothing_earlier_is_offered_for_the_first_checkpoint(
    people: People, browse: Browse
) -> None:
    run = damaged(people, 0)
    html = page(browse(people.starter), run)
    assert "Checkpoint 0 does not match its seal" in words(html)
    assert "intact" not in words(html)
    assert "Fork from" not in html


def test_once_the_record_is_restored_the_page_offers_to_resume(
    people: People, browse: Browse
) -> None:
    run = damaged(people, 2)
    at = timeline.get_checkpoint(f"{run.key}:at-2")
    tamper(at, took_ms=at.took_ms - 77)
    html = page(browse(people.starter), run)
    assert "The record verifies again" in words(html)
    assert "Resume this run" in html


def test_a_long_run_is_verified_only_at_the_named_checkpoint(
    people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = damaged(people, 2)
    monkeypatch.setattr(run_damage, "MOST_VERIFIED", 1)
    monkeypatch.setattr(run_damage, "verify_checkpoints", None)
    text = words(page(browse(people.starter), run))
    assert "Checkpoint 2 does not match its seal" in text
    assert "Checkpoint 1 before it is intact." in text


def test_who_may_not_steer_is_offered_nothing(people: People, browse: Browse) -> None:
    html = page(browse(people.auditor), damaged(people, 2))
    assert "Checkpoint 2 does not match its seal" in words(html)
    assert "Fork from" not in html
