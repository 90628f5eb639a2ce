"""What can be done with an imported run: a fork that asks for everything anew, and no
more.
"""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from approvals.models import ApprovalRequest
from checkpoints import timeline, uploads
from checkpoints.models import (
    Checkpoint,
    PendingWrite,
    Run,
    TaskResult,
    Upload,
    UploadReference,
)
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support import sealed_graphs as graphs
from tests.support.authority_graphs import leave, paying, payments, signed
from tests.support.bundles import (
    KEY,
    PUBLIC,
    exported,
    foreign,
    forgotten,
    lines_of,
    loaded,
    signed_run,
    written,
)
from tests.support.sealed_tables import ONE_KEY

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def keys(configure: Any) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})


def test_a_fork_of_an_imported_run_asks_for_every_guarded_value_and_for_every_effect(
    tmp_path: Path, people: cast.People
) -> None:
    imported = loaded(foreign(signed_run(tmp_path, people)))
    before = len(list(tmp_path.glob("*")))
    end = Checkpoint.objects.filter(run=imported.id, kept=True).order_by("-seq")
    settled = end.filter(source="settlement").first()
    plan = runs.plan(settled.id)
    assert plan.guarded == {"payout": "propose", "letter": "propose"}
    assert plan.needs_yes == ["pay"]
    fork = runs.advance(runs.fork(settled.id, by=people.starter).id)
    assert fork.status == "paused"
    assert fork.imported is False
    request = ApprovalRequest.objects.get(run=fork.id, status="open")
    assert request.node == "$patch"
    state = timeline.state_at(fork.head)["scratch"]
    assert state["payout"] == {}, "nothing is in force that nobody here has signed"
    assert state["letter"] == "", "nothing is in force that nobody here has signed"
    assert not TaskResult.objects.filter(run=fork.id).exists()
    assert len(list(tmp_path.glob("*"))) == before
    _signed_and_paid(fork, people)


def test_a_patch_of_an_imported_run_back_to_what_runs_begin_with_is_signed_too(
    tmp_path: Path, people: cast.People
) -> None:
    imported = loaded(foreign(signed_run(tmp_path, people)))
    settled = Checkpoint.objects.get(run=imported.id, source="settlement")
    patch = {"scratch": {"payout": {"amount": None}, "letter": ""}}
    assert runs.plan(settled.id, patch=patch).guarded == {
        "payout": "propose",
        "letter": "propose",
    }
    fork = runs.advance(runs.fork(settled.id, patch=patch, by=people.starter).id)
    held = {
        row.channel: read_value(row, "value")
        for row in PendingWrite.objects.filter(run=fork.id, node="$patch")
    }
    assert fork.status == "paused"
    assert held == {"payout": {}, "letter": ""}


def test_an_effect_needs_a_yes_also_where_nothing_says_that_it_happened(
    tmp_path: Path,
) -> None:
    imported = loaded(foreign(graphs.started(tmp_path)))
    assert not TaskResult.objects.filter(run=imported.id).exists()
    assert runs.plan(imported.head).needs_yes == ["pay"]
    assert runs.plan(imported.head, allow_effects=["pay"]).needs_yes == []


def _signed_and_paid(fork: Run, people: cast.People) -> None:
    from tests.support.run_actions import pending, reviewer, sign

    held = [row for row in pending(fork) if row.node == "$patch"]
    assert {row.channel for row in held} == {"payout", "letter"}
    sign(fork, reviewer(people.second_reviewer), ["approve"] * len(pending(fork)))
    stopped = runs.advance(fork.id)
    assert stopped.status == "paused", "the effect needs a yes of its own"
    assert timeline.state_at(stopped.head)["scratch"]["payout"] == {"amount": "9"}
    done = runs.advance(
        runs.resume(fork.id, allow_effects=["pay"], by=people.starter).id
    )
    assert done.status == "completed"
    assert verify_run(done.id) == []


def test_every_value_of_a_fork_with_a_foreign_origin_is_signed_again(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    settled = Checkpoint.objects.get(run=run.id, source="settlement")
    fork = runs.fork(settled.id, allow_effects=["pay"], by=people.starter, start=False)
    bodies = lines_of(exported(fork))
    forgotten(fork)
    forgotten(run)
    imported = loaded(written(bodies, KEY))
    assert verify_run(imported.id) == []
    # Nothing here tells that a gate let these through.
    assert runs.plan(imported.head).guarded == {
        "payout": "propose",
        "letter": "propose",
    }


def test_a_fork_of_an_imported_run_knows_as_little_of_who_wrote_what_on_the_way_as_that_does(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    settled = Checkpoint.objects.get(run=run.id, source="settlement")
    away = runs.fork(settled.id, allow_effects=["pay"], by=people.starter, start=False)
    bodies = lines_of(exported(away))
    forgotten(away)
    forgotten(run)
    imported = loaded(written(bodies, KEY))
    here = runs.fork(
        imported.head, allow_effects=["pay"], by=people.starter, start=False
    )
    patch = {"scratch": {"payout": {"amount": "77"}, "letter": "mine"}}
    assert not here.imported
    assert runs.plan(here.head, patch=patch).guarded == {
        "payout": "propose",
        "letter": "propose",
    }


def test_a_fork_that_opens_a_file_that_is_not_here_fails_and_names_the_file(
    people: cast.People,
) -> None:
    content = b"country,id,email,amount,date\nDE,1,a@example.com,10.00,2026-01-01\n"
    ref = uploads.save_upload(BytesIO(content), name="rows.csv", by=people.starter)
    run = runs.advance(runs.start("csv_import", {"rows": ref}, by=people.starter).id)
    bodies = lines_of(exported(run))
    UploadReference.objects.filter(run=run.id).delete()
    forgotten(run)
    uploads.delete_unneeded([Upload.objects.get().id])
    imported = loaded(written(bodies, KEY))
    assert imported.status == "completed"
    assert verify_run(imported.id) == []
    named = timeline.head_state(imported.id)["input"]["rows"]
    assert named["size"] == len(content)
    assert named["sha256"] == hashlib.sha256(content).hexdigest()
    first = Checkpoint.objects.filter(run=imported.id, kept=True).order_by("seq")[0]
    fork = runs.advance(
        runs.fork(first.id, allow_effects=["import_rows"], by=people.starter).id
    )
    assert fork.status == "failed"
    assert "is gone" in read_value(fork, "error")["message"]
    assert [fault.code for fault in verify_run(fork.id)] == ["payload_lost"], (
        "of a run of this house the file is missed"
    )


def test_a_fork_of_a_fork_of_an_imported_run_does_not_inherit_its_yes(
    tmp_path: Path, people: cast.People
) -> None:
    imported = loaded(foreign(graphs.started(tmp_path)))
    first = runs.fork(
        imported.head, allow_effects=["pay"], by=people.starter, start=False
    )
    second = runs.fork(first.head, by=people.starter, start=False)
    assert runs.plan(first.head).needs_yes == ["pay"]
    assert runs.plan(second.head).needs_yes == ["pay"]
    assert runs.plan(second.head, allow_effects=["pay"]).needs_yes == []
    assert runs.plan(first.head, "rewind").needs_yes == ["pay"]


def test_what_was_signed_elsewhere_is_no_authority_to_act_here(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    imported = loaded(foreign(signed(paying(), rita)))
    with payments() as paid:
        fork = runs.fork(str(imported.head), by=people.steward)
        fork = runs.advance(fork.id)
        run_actions.sign_open(fork, rita, "approve")
        fork = runs.advance(fork.id)
        fork = runs.resume(fork.id, allow_effects=["pay"], by=people.steward)
        fork = runs.advance(fork.id)
        assert paid == []
        asked_again = ApprovalRequest.objects.get(run=fork, kind="authority")
        why = read_value(asked_again, "why")
        assert "rita signed in another installation" in why
        run_actions.sign_open(fork, rita, "approve")
        fork = runs.advance(fork.id)
        assert paid == [7]
    assert fork.status == "completed"
    assert verify_run(fork.id) == []


def test_a_run_whose_people_were_asked_again_comes_in_whole(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    ravi = run_actions.reviewer(people.second_reviewer)
    with payments():
        run = signed(paying(), rita)
        leave(rita)
        run = runs.advance(run.id)
        run_actions.sign_open(run, ravi, "approve")
        run = runs.advance(run.id)
    imported = loaded(foreign(run))
    kinds = ApprovalRequest.objects.filter(run=imported).order_by("kind")
    assert list(kinds.values_list("kind", "status")) == [
        ("authority", "applied"),
        ("writes", "applied"),
    ]
    assert verify_run(imported.id) == []
