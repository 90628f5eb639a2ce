"""Addresses of the pages of floor 2: the inbox, reviews, receipts, delegations, the
audit log, webhooks, and what a person chooses about mail.
"""

from django.urls import path

from approvals.views import (
    inbox,
    receipt,
    review,
    seen_writes,
)
from approvals.views.audit import download, gate_figures, line, page
from approvals.views.notices import mail_choice, notice_page, webhooks
from approvals.views.people import (
    claim_cards,
    delegations,
    saved_filters,
    standing_policies,
)
from approvals.views.posts import comment, draft, passkey_challenge

urlpatterns = [
    path("reviews/", inbox.inbox_page, name="inbox"),
    # At `reviews/rows/` it would hide the review of a run whose key is “rows”.
    path("reviews/-/rows/", inbox.inbox_rows, name="inbox_rows"),
    path("reviews/-/filters/", saved_filters.saved_filters_page, name="saved_filters"),
    path("reviews/<str:ref>/", review.review_page, name="review"),
    path("reviews/<str:ref>/sign/", review.sign_page, name="sign"),
    path(
        "reviews/<str:ref>/passkey/", passkey_challenge.challenge_page, name="challenge"
    ),
    path("reviews/<str:ref>/claim/", claim_cards.claim_page, name="claim"),
    path("reviews/<str:ref>/comment/", comment.comment_page, name="comment"),
    path("reviews/<str:ref>/draft/", draft.draft_page, name="draft"),
    path("reviews/<str:ref>/seen/", seen_writes.seen_page, name="seen"),
    path("receipts/<uuid:receipt_id>/", receipt.receipt_page, name="receipt"),
    path("gates/figures/", gate_figures.gate_figures_page, name="gate_figures"),
    path("account/delegations/", delegations.pass_on, name="delegate"),
    path(
        "account/delegations/<uuid:delegation>/revoke/",
        delegations.revoke,
        name="delegation_revoke",
    ),
    path(
        "account/policies/",
        standing_policies.standing_policies_page,
        name="standing_policies",
    ),
    path(
        "account/policies/for/<uuid:request_id>/",
        standing_policies.new_policy_page,
        name="standing_policy_new",
    ),
    path(
        "account/policies/<uuid:standing_policy>/revoke/",
        standing_policies.revoke,
        name="standing_policy_revoke",
    ),
    path("audit/", page.audit_page, name="audit"),
    path("audit/<int:number>/", line.audit_line_page, name="audit_line"),
    path("audit/export.<str:format>", download.export_page, name="audit_export"),
    path(
        "decisions/<uuid:decision>/receipt/", receipt.receipt_file, name="receipt_file"
    ),
    path("account/mail/", mail_choice.choose_mail, name="mail_choice"),
    path("notices/", notice_page.notices_page, name="notices"),
    path("notices/read/", notice_page.read_notices, name="notices_read"),
    path("notices/kinds/", notice_page.choose_notices, name="notices_kinds"),
    path("webhooks/", webhooks.webhooks_page, name="webhooks"),
    path("webhooks/<uuid:webhook>/", webhooks.webhook_page, name="webhook"),
]
