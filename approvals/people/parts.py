"""The part of a person in a request: what they decided there, themselves or through
others, and whether anything is left to decide.
"""

from typing import Any

from approvals import permissions
from approvals.gates.request_state import RequestState, load_states, policy_of
from approvals.models import ApprovalRequest, Delegation
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.gates.verdicts import AUTOMATIC, excludes

NOT_ACTIVE = "The account is not active."
NOTHING_LEFT = "You have nothing left to decide in this request."


def why_nothing_to_decide(person: Any, request: ApprovalRequest) -> str:
    """Return the sentence that says why a person has nothing to decide in an open
    request; empty if they have. Reads `request.run`.

    Nothing is left for someone who has signed all open writes or is excluded from them.
    Raises `TamperedRow`, `WrongKey`.
    """
    if not person.is_active:
        return NOT_ACTIVE
    right = permissions.right_to_decide(person, request)
    if not right.yes:
        return right.why_not
    [state] = load_states([request], protection_of(request.run))
    for row in state.writes:
        if _is_left(person, right.delegations, state, row):
            return ""
    return NOTHING_LEFT


def _is_left(
    person: Any,
    passed_on: tuple[Delegation, ...],
    state: RequestState,
    row: PendingWrite,
) -> bool:
    """Return whether a write still waits for this person, by their own right or by that
    of someone for whom they decide.
    """
    standing = state.standings[row.write]
    # After a veto everybody may sign again.
    has_signed = person.pk in standing.by and not standing.vetoed
    if standing.settled or has_signed:
        return False
    policy = policy_of(state.request)
    if excludes(policy, row.author_id, person.pk):
        return False
    if not passed_on:
        return True
    taken_part = others_who_took_part(person, state, row)
    for delegation in passed_on:
        delegator = delegation.delegator_id
        is_author = excludes(policy, row.author_id, delegator)
        if delegator not in taken_part and not is_author:
            return True
    return False


def others_who_took_part(
    person: Any, state: RequestState, row: PendingWrite
) -> set[int]:
    """Return whose rights other people's counting decisions on this revision have used:
    those of the people who decided, and of those for whom they did.
    """
    last_votes = {}
    for vote in sorted(state.votes, key=lambda vote: vote.seq):
        is_current = vote.write == row.write and vote.revision == row.revision
        # A person outranks a standing policy, even one that uses the same right.
        if is_current and vote.by not in (person.pk, AUTOMATIC):
            last_votes[vote.by] = vote
    has_four_eyes = policy_of(state.request).four_eyes
    people: set[int] = set()
    for vote in last_votes.values():
        # Under four eyes an edit counts for nobody, so it uses up nobody's right.
        if vote.verdict == "edit" and has_four_eyes:
            continue
        people |= vote.people
    return people
