"""The writes of a run that a person may decide now."""

from collections.abc import Sequence
from typing import Any

from approvals.gates.lost_version import refusal_to_sign
from approvals.gates.request_state import RequestState, policy_of
from approvals.views.signing_reasons import reasons_not_to_sign
from checkpoints.models import PendingWrite, Run
from orchestrator.engine.gates.verdicts import excludes


def decidable_writes(
    user: Any,
    run: Run,
    states: Sequence[RequestState],
    *,
    despite_claims: bool = False,
) -> dict[str, PendingWrite]:
    """Return the writes of these requests that this person may decide now, by id; with
    `despite_claims` also those from which another person's claim keeps them.
    """
    refused = refusal_to_sign(run) is not None
    requests = [state.request for state in states]
    why_not = reasons_not_to_sign(
        user, requests, refused=refused, despite_claims=despite_claims
    )
    rows: dict[str, PendingWrite] = {}
    for state in states:
        if why_not[state.request.id]:
            continue
        policy = policy_of(state.request)
        for row in state.writes:
            if state.standings[row.write].settled:
                continue
            if not excludes(policy, row.author_id, user.pk):
                rows[str(row.write)] = row
    return rows
