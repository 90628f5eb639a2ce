"""What bundles hold of floor 2: which tables, and which form the JSON in them has. Added when the app is ready."""

from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints.bundle import BundledTable

REQUEST = {
    "title": str,
    "facts": [{"label": str}],
    "why": (str, dict),
    "policy": {
        "reviewers": [str],
        "quorum": int,
        "reject_quorum": int,
        "four_eyes": bool,
        "all_or_nothing": bool,
        "reason_required": [str],
    },
}
RECEIPT = {
    "lines": [
        {
            "write": str,
            "label?": str,
            "revision": int,
            "hash": str,
            "verdict": frozenset({"approve", "edit", "reject"}),
            "result": str,
            "why?": str,
            "by?": [str],
            "needed?": int,
            "settled?": str,
        }
    ]
}
TABLES = (
    BundledTable("request", ApprovalRequest, size=20, shapes=REQUEST),
    BundledTable("receipt", Receipt, size=20, shapes=RECEIPT),
    BundledTable("decision", Decision, size=20, shapes={"reason": str}),
)
