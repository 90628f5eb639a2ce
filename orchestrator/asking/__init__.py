"""Asking people without a graph to write: `from orchestrator import asking`. Whoever
runs their work elsewhere gets the inbox, the binding of a signature to its content, and
the receipts.
"""

from orchestrator.asking.approval import Approval, ItemStanding, approval_of
from orchestrator.asking.called_back import NewApproval, ask_with_callback
from orchestrator.asking.outcomes import report
from orchestrator.asking.verbs import (
    Inquiry,
    ask,
    ask_for,
    cancel,
    visible_approval,
)

__all__ = [
    "Approval",
    "Inquiry",
    "ItemStanding",
    "NewApproval",
    "approval_of",
    "ask",
    "ask_for",
    "ask_with_callback",
    "cancel",
    "report",
    "visible_approval",
]
