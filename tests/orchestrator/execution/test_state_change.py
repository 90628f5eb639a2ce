"""What people signed is changed by a migration only where people like them can be asked
again, under any name.
"""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Checkpoint, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import Append, Artifact, First, Graph
from tests.support import cast, run_actions
from tests.support.chain import join_in_a_row
from tests.support.small_graphs import Notes, Order, slice_of, started
from tests.support.versioned_graphs import deployed, paying, signed_letter

pytestmark = pytest.mark.django_db(transaction=True)


class Renamed(BaseModel):
    """`Notes` whose letter has another name."""

    notes: Annotated[list[str], Append] = []
    total: int = 0
    mail: str = ""


def _renaming(state: Any) -> None:
    state["scratch"]["mail"] = state["scratch"].pop("letter") + "!"


def _rewording(state: Any) -> None:
    state["scratch"]["letter"] += "!"


@pytest.mark.parametrize(
    ("state", "migrates"), [(Notes, _rewording), (Renamed, _renaming)]
)
def test_what_was_signed_is_not_changed_where_its_gate_is_gone(
    people: cast.People, state: Any, migrates: Any
) -> None:
    run = signed_letter(people)
    new = paying("2", state, nodes=("fetch", "file", "send"))
    new.migration(from_version="1")(migrates)
    deployed(new)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert run.status == Status.INCOMPATIBLE
    assert run_actions.state(run)["letter"] == "Dear"
    assert (
        "the migration changes `letter`, which the gate of node `propose` guards"
        in error["message"]
    )
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("state", "migrates", "channel"),
    [(Notes, _rewording, "letter"), (Renamed, _renaming, "mail")],
)
def test_what_was_signed_is_signed_again_under_any_name_where_its_gate_is_there(
    people: cast.People, state: Any, migrates: Any, channel: str
) -> None:
    run = signed_letter(people)
    new = paying("2", state, guards=(), nodes=("fetch", "propose", "file", "send"))
    new.migration(from_version="1")(migrates)
    deployed(new)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED, stored_error(run)
    assert run.at_node == "$patch", stored_error(run)
    assert run_actions.state(run)[channel] == ("Dear" if channel == "letter" else "")


def _doubling(state: Any) -> None:
    state["scratch"]["total"] = state["scratch"]["total"] * 2 + 1


def counted(version: str, *, migrates: bool = True) -> Graph:
    """A version in which the total is guarded, and to which a migration leads that
    changes it.
    """
    flow = paying(version, guards=("letter", "total"))
    if migrates:
        flow.migration(from_version=str(int(version) - 1))(_doubling)
    return flow


def _signed(run: Run, people: cast.People) -> Run:
    assert run.status == Status.PAUSED, stored_error(run)
    assert run.at_node == "$patch", stored_error(run)
    run_actions.sign_open(run, run_actions.reviewer(people.reviewer), "approve")
    return slice_of(Run.objects.get(id=run.id), draining=iter([False, True]).__next__)


def test_migrations_of_one_line_are_signed_one_after_another(
    people: cast.People,
) -> None:
    run = started(paying("1"))
    totals = []
    for version in ("2", "3", "4"):
        deployed(counted(version))
        run = _signed(runs.advance(run.id), people)
        totals.append(run_actions.state(run)["total"])
    assert totals == [1, 3, 7]
    tasks = (
        ApprovalRequest.objects.filter(run=run.id, node="$patch")
        .order_by("visit")
        .values_list("visit", "status")
    )
    assert [*tasks] == [(1, "applied"), (2, "applied"), (3, "applied")]
    assert verify_run(run.id) == []


def test_a_migration_is_signed_behind_a_patch_that_was_signed(
    people: cast.People,
) -> None:
    run = started(counted("1", migrates=False))
    fork = runs.fork(run.head or "", patch={"scratch": {"total": 5}})
    new_run = _signed(runs.advance(fork.id), people)
    deployed(counted("2"))
    new_run = _signed(runs.advance(new_run.id), people)
    assert run_actions.state(new_run)["total"] == 11
    again = runs.fork(new_run.head or "", patch={"scratch": {"total": 6}})
    assert [row.task for row in run_actions.pending(again)] == ["$patch:1:0"], (
        "each line counts its own"
    )
    assert run_actions.state(_signed(runs.advance(again.id), people))["total"] == 6
    assert verify_run(new_run.id) == verify_run(again.id) == []


class Owned(Notes):
    """`Notes` with an owner, who stays the first that is named."""

    owner: Annotated[str | None, First] = None


class Placed(Notes):
    """`Notes` with a place, which is replaced."""

    owner: str | None = None


def owning(version: str, state: Any, migrates: Any = None) -> Graph:
    """start may name an owner, wait does nothing, late names one."""
    flow = Graph("owning", version=version, input=Order, state=state)
    named = {"start": "bob"} if state is Placed else {}
    for name in ("start", "wait", "late"):
        owner = named.get(name, "late" if name == "late" else None)
        flow.node(name)(
            lambda state, ctx, owner=owner: {"owner": owner} if owner else None
        )
    join_in_a_row(flow, "start", "wait", "late")
    if migrates:
        flow.migration(from_version="1")(migrates)
    return flow


def _owned(state: Any) -> None:
    state["scratch"]["owner"] = "ann"


def _as_it_is(state: Any) -> None:
    """Nothing is to be done."""


@pytest.mark.parametrize(
    ("old", "migrates", "owner"),
    [(Owned, _owned, "ann"), (Owned, _as_it_is, "late"), (Placed, _as_it_is, "bob")],
)
def test_what_a_migration_gives_a_first_channel_stays_in_the_run_as_in_its_fork(
    old: Any, migrates: Any, owner: str
) -> None:
    run = started(owning("1", old))
    slice_of(run, draining=iter([False, False, True]).__next__)
    assert run.head_seq == 2
    deployed(owning("2", Owned, migrates))
    fork = runs.fork(Run.objects.get(id=run.id).head)
    for ended in (runs.advance(run.id), runs.advance(fork.id)):
        assert ended.status == Status.COMPLETED, stored_error(ended)
        assert run_actions.state(ended)["owner"] == owner


def test_a_replay_asks_nobody_for_what_a_migration_makes_of_it(
    people: cast.People,
) -> None:
    run = started(paying("1", nodes=("fetch", "send")))
    runs.advance(run.id)
    replay = runs.replay(f"{run.key}:initial")
    new = paying("2", guards=("letter", "total"), nodes=("fetch", "propose", "send"))
    new.migration(from_version="1")(lambda state: state["scratch"].update(total=9))
    deployed(new)
    replay = runs.advance(replay.id)
    assert replay.status == Status.COMPLETED, stored_error(replay)
    assert replay.version == "2", stored_error(replay)
    assert (
        timeline.state_at(Checkpoint.objects.get(run=replay.id, source="version").id)[
            "scratch"
        ]["total"]
        == 9
    )
    assert not ApprovalRequest.objects.filter(run=replay.id).exists()
    assert verify_run(replay.id) == []


class Relocated(Notes):
    """`Notes` whose letter is an artifact."""

    letter: Annotated[str, Artifact] = ""


def test_a_signed_value_stays_as_it_is_until_its_move_to_another_partition_is_signed(
    people: cast.People,
) -> None:
    run = signed_letter(people)
    head = Run.objects.get(id=run.id).head

    def moves(state: Any) -> None:
        state["artifacts"]["letter"] = state["scratch"].pop("letter") + "!"

    new = paying("2", Relocated, guards=(), nodes=("fetch", "propose", "file", "send"))
    new.migration(from_version="1")(moves)
    deployed(new)
    fork = runs.fork(head)
    for waiting in (runs.advance(run.id), runs.advance(fork.id)):
        assert waiting.status == Status.PAUSED, stored_error(waiting)
        assert waiting.at_node == "$patch", stored_error(waiting)
        assert timeline.head_state(waiting.id)["artifacts"] == {"letter": "Dear"}
        _signed(waiting, people)
        assert timeline.head_state(waiting.id)["artifacts"] == {"letter": "Dear!"}
        assert verify_run(waiting.id) == []
