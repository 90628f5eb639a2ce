"""The drill of docs/backup.md, on both databases: a copy is made while a worker works, the
installation is lost, and another one goes on from the copy. Nothing outside is done
twice without a person's yes.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy.installation import DrillOnServer, DrillSite
from tests.support.processes import calls, until

PEOPLE = """
from django.contrib.auth.models import User
from tests.support.run_actions import reviewer
reviewer(User.objects.create_user("rita"))
"""
START = """
from orchestrator import runs
runs.start("effects", {{"folder": "{folder}"}}, key="done")
runs.start("gated", {{"folder": "{folder}"}}, key="paused")
runs.start("gated", {{"folder": "{folder}"}}, key="signed")
runs.start("effects", {{"folder": "{held_up}"}}, key="running")
"""
SIGN = """
from django.contrib.auth.models import User
from checkpoints.models import Run
from tests.support.run_actions import sign_open
sign_open(Run.objects.get(key="{key}"), User.objects.get(username="rita"), "approve")
"""
LATER = """
from orchestrator import runs
runs.start("effects", {{"folder": "{folder}"}}, key="later")
"""
OPEN_PAYMENTS = """
SELECT t.outcome FROM checkpoints_taskresult t
JOIN checkpoints_run r ON r.id = t.run_id
WHERE r.key = 'running' AND t.node = 'pay' AND t.outcome = 'open'
"""


@pytest.fixture(params=[DrillSite, DrillOnServer], ids=["sqlite", "postgresql"])
def install(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], DrillSite]]:
    """`install()` is another installation, on another folder or server."""
    sites: list[DrillSite] = []

    def make() -> DrillSite:
        sites.append(request.param(tmp_path / "heads"))
        return sites[-1]

    yield make
    for site in sites:
        site.lose()


# A dozen commands, each a process of its own: minutes where other tests run beside it.
@pytest.mark.timeout(900)
def test_an_installation_that_was_lost_goes_on_from_its_copy(
    install: Callable[[], DrillSite], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    held_up = tmp_path / "held-up"
    held_up.mkdir()
    # An effect that writes here stands still until something reads.
    pipe = held_up / "outside.log"
    os.mkfifo(pipe)

    # The installation works: a run is done, two wait for people, one is in the middle of
    # a payment.
    site = install()
    site.manage("migrate", "--verbosity=0")
    site.python(PEOPLE + START.format(folder=tmp_path, held_up=held_up))
    site.start_worker()
    site.wait_for(done="completed", paused="paused", signed="paused", running="running")
    until(lambda: site.ask(OPEN_PAYMENTS), what="the payment to begin")

    # A copy is made; what happens after it is not in it.
    site.back_up(copy)
    held_up_payment = pipe.read_text()
    assert held_up_payment.startswith("paid ")
    site.python(SIGN.format(key="signed"))
    site.wait_for(signed="completed")
    outside = calls(tmp_path)
    assert sorted(line.split()[0] for line in outside) == ["paid", "released", "sent"]
    site.lose()

    # Another installation takes its place, by the steps of the page.
    other = install()
    other.put_back(copy)
    other.manage("migrate", "--verbosity=0")
    other.manage("restored", "--reason", "the host is gone")
    other.manage("verify_runs")
    assert other.statuses() == {
        "done": "completed",
        "paused": "failed",
        "signed": "failed",
        "running": "unknown",
    }

    # A worker takes new runs, and goes on with none of these by itself.
    other.start_worker()
    (tmp_path / "later").mkdir()
    other.python(LATER.format(folder=tmp_path / "later"))
    other.wait_for(later="completed")
    assert calls(tmp_path) == outside

    # What waited for people can be signed; a yes lets it go on.
    other.python(SIGN.format(key="paused"))
    time.sleep(1)
    assert calls(tmp_path) == outside
    other.manage("resume_run", "paused")
    other.wait_for(paused="completed")
    (released,) = set(calls(tmp_path)) - set(outside)
    assert released.startswith("released ")

    # The payment that stood open happened, says who looked; it is not made again.
    pipe.unlink()
    output = tmp_path / "output.json"
    output.write_text('{"paid": "A-1", "notes": ["paid"]}')
    happened = ["--happened", f"--output={output}", "--reason=the bank has it"]
    other.manage("settle_run", "running", "pay:1:0", *happened)
    other.wait_for(running="completed")
    assert [line.split()[0] for line in calls(held_up)] == ["sent"]

    # The run whose payment is outside and not in the copy waits for as long as it takes.
    assert other.statuses()["signed"] == "failed"
    keys = [*calls(tmp_path), held_up_payment.strip(), *calls(held_up)]
    assert len(keys) == len(set(keys)) == 6
    other.manage("verify_runs")
