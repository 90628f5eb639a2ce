"""What people signed is changed by a migration only where people like them can be asked again, under any name."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import Append
from tests.support import cast, run_actions
from tests.support.small_graphs import Notes
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


@pytest.mark.parametrize(("state", "migrates"), [(Notes, _rewording), (Renamed, _renaming)])
def test_what_was_signed_is_not_changed_where_its_gate_is_gone(people: cast.People, state: Any, migrates: Any) -> None:
    run = signed_letter(people)
    new = paying("2", state, nodes=("fetch", "file", "send"))
    new.migration(from_version="1")(migrates)
    deployed(new)
    run = runs.advance(run.id)
    error = stored_error(run)
    assert error is not None
    assert (run.status, run_actions.state(run)["letter"]) == (Status.INCOMPATIBLE, "Dear")
    assert "the migration changes `letter`, which the gate of node `propose` guards" in error["message"]
    assert verify_run(run.id) == []


@pytest.mark.parametrize(
    ("state", "migrates", "channel"), [(Notes, _rewording, "letter"), (Renamed, _renaming, "mail")]
)
def test_what_was_signed_is_signed_again_under_any_name_where_its_gate_is_there(
    people: cast.People, state: Any, migrates: Any, channel: str
) -> None:
    run = signed_letter(people)
    new = paying("2", state, guards=(), nodes=("fetch", "propose", "file", "send"))
    new.migration(from_version="1")(migrates)
    deployed(new)
    run = runs.advance(run.id)
    assert (run.status, run.at_node) == (Status.PAUSED, "$patch"), stored_error(run)
    assert run_actions.state(run)[channel] == ("Dear" if channel == "letter" else "")
