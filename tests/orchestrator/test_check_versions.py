"""The deployment of docs/versions.md, followed: its two versions, the test of its
migration, its command, its end.
"""

import re
import textwrap
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from checkpoints.core.status import Status
from checkpoints.verification import verify_run
from orchestrator import discovery, runs
from orchestrator.engine import registry
from tests.house.commands import ROOT
from tests.house.words import blocks
from tests.support import cast, run_actions

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW = (block for block in blocks("versions.md", "python"))
(SHOWN,) = re.findall(
    r"```console\n(.*?)```", (ROOT / "docs" / "versions.md").read_text(), re.DOTALL
)


def declared(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "docs/versions.md", "exec"), names)
    return names


def test_the_deployment_of_the_documentation_goes_as_it_is_told(
    people: cast.People,
) -> None:
    registry.replace(declared(OLD)["expense"])
    begun, asked = (runs.start("trips", {"employee": "Kim"}) for _ in range(2))
    assert runs.advance(asked.id).status == Status.PAUSED
    discovery.note_versions()
    registry.clear()
    new = declared(NEW)
    new["test_amounts_get_two_digits"]()
    registry.replace(new["expense"])
    out = StringIO()
    call_command("check_versions", stdout=out)
    shown_lines = (
        textwrap.dedent(SHOWN)
        .replace("{begun}", str(begun.id))
        .replace("{asked}", str(asked.id))
        .splitlines()
    )
    assert shown_lines[0] == "$ python manage.py check_versions"
    assert out.getvalue().splitlines() == shown_lines[1:]
    run_actions.sign(asked, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(asked.id).status == Status.COMPLETED
    assert runs.advance(begun.id).status == Status.PAUSED
    run_actions.sign(begun, people.reviewer, ["approve"])
    assert runs.advance(begun.id).status == Status.COMPLETED
    assert [run_actions.state(run)["paid"] for run in (asked, begun)] == [
        "120 to Kim",
        "120.50 EUR to Kim",
    ]
    assert [run_actions.state(run)["amount"] for run in (asked, begun)] == [
        "120.00",
        "120.50",
    ]
    assert verify_run(asked.id) == verify_run(begun.id) == []
