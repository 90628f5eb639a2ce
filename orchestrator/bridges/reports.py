"""Reports of what came of approved calls. None of them breaks the work that it is about: a
report that is not delivered is logged, and may be made again.
"""

import logging
from collections.abc import Mapping

from orchestrator.client import (
    Approval,
    AsyncClient,
    Client,
    ServerFailed,
    Throttled,
    Unreachable,
)
from orchestrator.engine.errors import NotDone

AWAY = (Unreachable, ServerFailed, Throttled)
"""The errors after which the same call is worth another try, later."""
Outcome = tuple[str, str]
"""done, failed or unknown, and a short text."""
DONE: Outcome = ("done", "")
_LONGEST_DETAIL = 2000
log = logging.getLogger(__name__)


def report(client: Client, approval: Approval, outcomes: Mapping[str, Outcome]) -> bool:
    """Report the outcomes of items, and return False if the site was away: report them
    again later. The same report again changes nothing.
    """
    try:
        if outcomes:
            client.report(approval, outcomes)
    # Whatever it is, the call has been made, and must not be made again because of it.
    except Exception as error:
        return _is_settled(approval, error)
    return True


async def report_async(
    client: AsyncClient, approval: Approval, outcomes: Mapping[str, Outcome]
) -> bool:
    """Report as `report` does, with a client that awaits."""
    try:
        if outcomes:
            await client.report(approval, outcomes)
    except Exception as error:
        return _is_settled(approval, error)
    return True


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a call that raised. Only `NotDone` says that nothing
    happened; the text of any other error may have secrets.
    """
    if isinstance(error, NotDone):
        return "failed", str(error)[:_LONGEST_DETAIL]
    return "unknown", type(error).__name__


def _is_settled(approval: Approval, error: Exception) -> bool:
    log.warning("approval %s: its outcome is not reported: %s", approval.id, error)
    return not isinstance(error, AWAY)
