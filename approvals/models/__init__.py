"""The rows of floor 2: what people are asked, what they answered, and what their
signing made of it. One noun a module.
"""

from approvals.models.claim import RequestClaim
from approvals.models.comment import RequestComment
from approvals.models.decision import Decision
from approvals.models.delegation import Delegation
from approvals.models.door import Door, DoorMessage, MessageStatus
from approvals.models.draft import Draft
from approvals.models.drafter import RequestDrafter
from approvals.models.first_sight import Sighting
from approvals.models.fresh_login import FreshLogin
from approvals.models.mail import MailPreference, NoticeMail
from approvals.models.notice import DeliveryStatus, Notice
from approvals.models.passkey import Passkey, PasskeyChallenge
from approvals.models.person_notice import PersonNotice
from approvals.models.receipt import Receipt
from approvals.models.request import ApprovalRequest, RequestStatus
from approvals.models.reviewer import RequestReviewer
from approvals.models.saved_filter import SavedFilter
from approvals.models.shapes import REQUEST
from approvals.models.signer import RequestSigner
from approvals.models.standing_policy import StandingPolicy
from approvals.models.verdicts import (
    ANSWERS,
    BY_DEADLINE,
    BY_POLICY,
    BY_VETO,
    NO_AUTO,
    NO_STANDING,
    NO_VETO,
    VETO,
    VETO_ANSWERS,
)
from approvals.models.viewer import RequestViewer
from approvals.models.webhook import Envelope, Webhook, WebhookDelivery

__all__ = [
    "ANSWERS",
    "BY_DEADLINE",
    "BY_POLICY",
    "BY_VETO",
    "NO_AUTO",
    "NO_STANDING",
    "NO_VETO",
    "REQUEST",
    "VETO",
    "VETO_ANSWERS",
    "ApprovalRequest",
    "Decision",
    "Delegation",
    "DeliveryStatus",
    "Door",
    "DoorMessage",
    "Draft",
    "Envelope",
    "FreshLogin",
    "MailPreference",
    "MessageStatus",
    "Notice",
    "NoticeMail",
    "Passkey",
    "PasskeyChallenge",
    "PersonNotice",
    "Receipt",
    "RequestClaim",
    "RequestComment",
    "RequestDrafter",
    "RequestReviewer",
    "RequestSigner",
    "RequestStatus",
    "RequestViewer",
    "SavedFilter",
    "Sighting",
    "StandingPolicy",
    "Webhook",
    "WebhookDelivery",
]
