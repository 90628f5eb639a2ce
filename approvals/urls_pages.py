"""Addresses of the pages of floor 2: the inbox, reviews, receipts."""

from django.urls import path

from approvals.views import draft, inbox, receipt, review

urlpatterns = [
    path("reviews/", inbox.inbox_page, name="inbox"),
    path("reviews/-/rows/", inbox.inbox_rows, name="inbox_rows"),
    path("reviews/<str:ref>/", review.review_page, name="review"),
    path("reviews/<str:ref>/sign/", review.sign_page, name="sign"),
    path("reviews/<str:ref>/draft/", draft.draft_page, name="draft"),
    path("receipts/<uuid:receipt_id>/", receipt.receipt_page, name="receipt"),
    path("decisions/<uuid:decision>/receipt/", receipt.receipt_file, name="receipt_file"),
]
