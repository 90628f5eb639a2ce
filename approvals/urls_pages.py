"""Addresses of the pages of floor 2: the inbox, reviews, receipts, delegations, the
audit log, webhooks.
"""

from django.urls import path

from approvals.views import (
    draft,
    inbox,
    passkey_challenge,
    receipt,
    review,
    webhooks,
)
from approvals.views.audit import download, line, page
from approvals.views.people import claim_cards, delegations

urlpatterns = [
    path("reviews/", inbox.inbox_page, name="inbox"),
    # At `reviews/rows/` it would hide the review of a run whose key is “rows”.
    path("reviews/-/rows/", inbox.inbox_rows, name="inbox_rows"),
    path("reviews/<str:ref>/", review.review_page, name="review"),
    path("reviews/<str:ref>/sign/", review.sign_page, name="sign"),
    path(
        "reviews/<str:ref>/passkey/", passkey_challenge.challenge_page, name="challenge"
    ),
    path("reviews/<str:ref>/claim/", claim_cards.claim_page, name="claim"),
    path("reviews/<str:ref>/draft/", draft.draft_page, name="draft"),
    path("receipts/<uuid:receipt_id>/", receipt.receipt_page, name="receipt"),
    path("account/delegations/", delegations.pass_on, name="delegate"),
    path(
        "account/delegations/<uuid:delegation>/revoke/",
        delegations.revoke,
        name="delegation_revoke",
    ),
    path("audit/", page.audit_page, name="audit"),
    path("audit/<int:number>/", line.audit_line_page, name="audit_line"),
    path("audit/export.<str:format>", download.export_page, name="audit_export"),
    path(
        "decisions/<uuid:decision>/receipt/", receipt.receipt_file, name="receipt_file"
    ),
    path("webhooks/", webhooks.webhooks_page, name="webhooks"),
    path("webhooks/<uuid:webhook>/", webhooks.webhook_page, name="webhook"),
]
