"""Title and facts of a request after an edit, where the terms of its gate name them."""

from typing import Any

import pytest

from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate
from orchestrator.engine.errors import InvalidValue
from tests.support import cast, run_actions
from tests.support.run_actions import pending, request, sign
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _proposing(terms: Any, *, facts: Any = ()) -> Any:
    flow = graph("facts-of-terms")
    gate = Gate(reviewers=["group:claims"], terms=terms, facts=facts)
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"total": 7})
    flow.edge(START, "propose")
    flow.edge("propose", END)
    return flow


@pytest.mark.parametrize("declared", [(), [Fact("Declared", "proposal.total")]])
def test_facts_of_terms_follow_an_edit(people: cast.People, declared: Any) -> None:
    rita = run_actions.reviewer(people.reviewer)
    ravi = run_actions.reviewer(people.second_reviewer)

    def terms(asked: Any) -> dict[str, Any]:
        return {"facts": [Fact("Total", "proposal.total")], "quorum": 2}

    run = advanced(_proposing(terms, facts=declared))
    sign(run, rita, [("edit", 9)])
    assert read_value(request(run), "facts") == [{"label": "Total", "value": 9}]
    [row] = pending(run)
    assert read_value(row, "shown")["facts"] == [{"label": "Total", "value": 9}]
    sign(run, ravi, ["approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_an_edit_is_refused_where_nobody_knows_the_facts_any_more(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    options: dict[str, Any] = {"facts": [Fact("Total", "proposal.total")]}
    run = advanced(_proposing(lambda asked: options))
    options["facts"] = None
    with pytest.raises(InvalidValue, match="the terms of a gate are wrong"):
        sign(run, rita, [("edit", 9)])
    assert pending(run)[0].revision == 1
