"""What people see of runs whose payloads are elsewhere: the same as of others, and why
where they cannot be read.
"""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast
from tests.support.payload_backends import Full
from tests.support.payload_runs import chain, kept_files
from tests.support.small_graphs import advanced, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def olga(client: Client, people: cast.People) -> Client:
    """A browser of somebody who may see everything, the admin included."""
    user = people.auditor
    user.is_superuser = user.is_staff = True
    user.save()
    client.force_login(user)
    return client


def _pages(run: Run) -> list[str]:
    """Return where the state of a run is shown."""
    tabs = [
        f"/runs/{run.id}/?tab={tab}"
        for tab in ("changed", "state", "writes", "results", "events")
    ]
    api = [
        f"/api/v1/checkpoints/{run.head}{what}" for what in ("/", "/state/", "/diff/")
    ]
    return [
        f"/runs/{run.id}/",
        *tabs,
        *api,
        f"/admin/checkpoints/checkpoint/{run.head}/change/",
    ]


def test_what_is_in_files_is_shown_as_what_is_in_rows(
    cellar: Path, olga: Client
) -> None:
    run = advanced(chain("seen", *"ab"))
    for page in _pages(run):
        assert olga.get(page).status_code == 200, page
    assert (
        "notes"
        in olga.get(
            f"/admin/checkpoints/checkpoint/{run.head}/change/"
        ).content.decode()
    )
    assert olga.get(f"/api/v1/checkpoints/{run.head}/state/").json()["scratch"][
        "notes"
    ] == ["a", "b"]
    assert list(verify_run(run.id)) == []


def test_where_the_backend_is_unknown_or_away_pages_say_so_and_the_run_is_still_listed(
    cellar: Path, olga: Client, settings: Any
) -> None:
    run = advanced(chain("unseen", *"ab"))
    settings_before = settings.COUNTERSIGN
    Full.away = True
    _said(olga, run, "the cellar is closed")
    Full.away = False
    settings.COUNTERSIGN = {}
    _said(olga, run, "no payload backend &#x27;cellar&#x27;")
    settings.COUNTERSIGN = settings_before
    assert olga.get(f"/runs/{run.id}/").status_code == 200


def _said(olga: Client, run: Run, words: str) -> None:
    for page in _pages(run):
        answer = olga.get(page)
        text = answer.content.decode().replace("'", "&#x27;")
        if page.startswith("/api"):
            assert answer.status_code in (200, 503), page
        else:
            assert answer.status_code == 200, page
    assert (
        words
        in olga.get(
            f"/admin/checkpoints/checkpoint/{run.head}/change/"
        ).content.decode()
    )
    assert words in olga.get(f"/runs/{run.id}/?tab=state").content.decode()
    assert text
    assert "unseen" in olga.get("/runs/").content.decode()


def test_a_run_whose_payload_is_lost_can_still_be_looked_at(
    cellar: Path, olga: Client
) -> None:
    run = started(chain("lost", *"ab"))
    for path in kept_files(cellar):
        path.unlink()
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert "is not there" in olga.get(f"/runs/{run.id}/").content.decode()
    faults = [fault.reason for fault in verify_run(run.id)]
    assert any("is not there" in reason for reason in faults)


def test_nothing_of_an_encrypted_graph_lies_readable_in_files(
    cellar: Path, configure: Any
) -> None:
    configure(ENCRYPTION_KEYS={"one": bytes(range(32))})
    flow = chain("hushed", "a", encrypted=True)
    flow.node("tell")(lambda state, ctx: {"letter": "marker-in-a-file " * 100})
    flow.edge("a", "tell")
    flow.edge("tell", "END")
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    files = [path.read_bytes() for path in kept_files(cellar)]
    assert files
    assert all(
        data[:1] == b"\x03" and b"marker" not in data and b"notes" not in data
        for data in files
    )


def test_a_run_over_sealed_files_stops_where_files_changed_places(
    configure: Any, tmp_path: Path
) -> None:
    files = {"backend": "files", "options": {"location": str(tmp_path)}}
    entry = {"backend": "sealed", "options": {"of": files}}
    configure(PAYLOADS={"cellar": entry})
    first_run = started(chain("swapped", "a"))
    second_run = started(chain("swapped", "a"))
    first, second = (
        next(tmp_path.rglob(f"{run.head}.snapshot.payload"))
        for run in (first_run, second_run)
    )
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    assert (
        runs.advance(first_run.id).status
        == runs.advance(second_run.id).status
        == Status.TAMPERED
    )
