"""Acts on several runs from the admin: each shows its runs first, and acts when it is
posted.
"""

import io
import shutil
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from checkpoints.models import Checkpoint, Job, LegalHold, Pin, Run
from orchestrator import runs
from orchestrator.admin.run_acts import ACTS, MOST
from orchestrator.jobs import kinds
from tests.support import cast, claims
from tests.support.chain import join_in_a_row
from tests.support.page_people import claim_graph
from tests.support.rows import missing
from tests.support.small_graphs import graph, started
from tests.support.stewards import browser_of, text

__all__ = ["claim_graph"]
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("claim_graph"),
]
RUNS = reverse("admin:checkpoints_run_changelist")


@pytest.fixture
def two(people: cast.People) -> list[Run]:
    """Two runs that wait."""
    return [claims.paused(key, people.starter) for key in ("CLM-1", "CLM-2")]


@pytest.fixture
def stella(people: cast.People) -> Client:
    """The browser of a steward who may export runs too."""
    people.steward.user_permissions.add(Permission.objects.get(codename="export_run"))
    return browser_of(people.steward)


def address(act: str, *chosen: Run) -> str:
    return f"{reverse('admin:runs_act', args=[act])}?{'&'.join(f'run={run.id}' for run in chosen)}"


def failed(name: str) -> Run:
    """A run whose second node failed."""
    flow = graph(name)
    flow.node("a")(lambda state, ctx: {"notes": ["a"]})

    @flow.node()
    def b(state: Any, ctx: Any) -> None:
        raise RuntimeError("broken")

    join_in_a_row(flow, "a", "b")
    return runs.advance(started(flow).id)


def test_runs_are_cancelled_with_a_reason_and_their_number_typed(
    two: list[Run], stella: Client
) -> None:
    page = text(stella.get(address("cancel", *two)))
    assert all(run.key in page for run in two)
    for wrong in (
        {"reason": "", "typed": "2"},
        {"reason": "over", "typed": "3"},
        {"reason": "over"},
    ):
        assert stella.post(address("cancel", *two), wrong).status_code == 422
    assert not Run.objects.filter(status="cancelled").exists()
    stella.post(address("cancel", *two), {"reason": "over", "typed": "2"})
    assert Run.objects.filter(status="cancelled").count() == 2


def test_failed_runs_are_forked_after_their_dry_run_and_others_are_left_out(
    two: list[Run], stella: Client
) -> None:
    broken = failed("breaks")
    page = text(stella.get(address("fork", broken, *two)))
    plan = page.split('data-test="plan"')[1].split("</pre>")[0]
    assert "1 of 1 runs looked at" in plan
    assert "b:1:0" in plan
    assert Run.objects.count() == 3, "a dry run writes nothing"
    stella.post(address("fork", broken, *two), {"reason": "mended"})
    kinds.advance(Job.objects.get(kind="fork_runs").id)
    assert Run.objects.count() == 4


def test_what_is_refused_of_one_run_stops_no_other(
    two: list[Run], stella: Client
) -> None:
    broken = failed("breaks")
    page = text(
        stella.post(address("resume", two[0], broken), {"typed": "2"}, follow=True)
    )
    assert Run.objects.get(id=broken.id).status == "queued"
    assert "CLM-1" in page.split('class="messagelist"')[1].split("</ul>")[0]
    assert "done for 1 of 2 runs" in page


def test_the_newest_checkpoints_are_pinned_with_a_reason(
    two: list[Run], stella: Client
) -> None:
    assert stella.post(address("pin", *two), {}).status_code == 422
    stella.post(address("pin", *two), {"reason": "an audit"})
    assert {pin.checkpoint for pin in Pin.objects.all()} == {run.head for run in two}


def test_runs_are_put_under_a_legal_hold_with_a_reason(
    two: list[Run], stella: Client
) -> None:
    stella.post(address("hold", *two), {"reason": "a court asked"})
    assert set(LegalHold.objects.values_list("run", "reason")) == {
        (run.id, "a court asked") for run in two
    }


def test_runs_are_exported_as_one_file(two: list[Run], stella: Client) -> None:
    answer = stella.post(address("export", *two), {})
    data = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert sorted(names) == sorted(f"run-{run.id}.jsonl" for run in two)


def test_no_bundle_is_in_memory_as_a_whole_when_runs_are_exported(
    two: list[Run], stella: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "COPY_BUFSIZE", 1024)
    largest = 0
    write = zipfile._ZipWriteFile.write

    def measured(entry: Any, data: bytes) -> int:
        nonlocal largest
        largest = max(largest, len(data))
        return write(entry, data)

    monkeypatch.setattr(zipfile._ZipWriteFile, "write", measured)
    answer = stella.post(address("export", *two), {})
    data = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert min(entry.file_size for entry in archive.infolist()) > 1024
    assert 0 < largest <= 1024


@pytest.mark.parametrize("act", ["resume", "cancel", "fork", "pin", "hold", "export"])
def test_who_lacks_the_right_acts_on_no_run(
    act: str, two: list[Run], people: cast.People
) -> None:
    reviewer = browser_of(people.reviewer)
    before = Run.objects.filter(status="paused").count()
    assert reviewer.get(address(act, *two)).status_code == 403
    assert (
        reviewer.post(address(act, *two), {"reason": "x", "typed": "2"}).status_code
        == 403
    )
    assert Run.objects.filter(status="paused").count() == before
    assert not Pin.objects.exists()
    assert not LegalHold.objects.exists()
    assert not Job.objects.filter(kind="fork_runs").exists()


def test_an_address_that_says_nonsense_is_not_there(
    two: list[Run], stella: Client
) -> None:
    base = reverse("admin:runs_act", args=["cancel"])
    wrong = [
        base,
        f"{base}?run=x",
        f"{base}?{'&'.join(f'run={missing()}' for _ in range(MOST + 1))}",
    ]
    wrong.append(address("burn", *two))
    assert [stella.get(one).status_code for one in wrong] == [404] * 4


def test_every_action_of_the_list_leads_to_its_page_and_changes_nothing(
    two: list[Run], stella: Client
) -> None:
    actions = {
        "resume": "resume",
        "cancel": "cancel",
        "fork_failed": "fork",
        "pin_newest": "pin",
    }
    actions |= {
        "put_on_hold": "hold",
        "export_bundles": "export",
        "open_reviews": "review",
    }
    assert set(actions.values()) == set(ACTS)
    chosen = [str(run.id) for run in two]
    for action, act in actions.items():
        answer: Any = stella.post(RUNS, {"action": action, "_selected_action": chosen})
        assert answer.status_code == 302, action
        assert answer.url.startswith(reverse("admin:runs_act", args=[act]))
    assert Run.objects.filter(status="paused").count() == 2
    assert Checkpoint.objects.exists()
