"""Addresses of the log-in of a company; they come before those of `orchestrator.urls`,
whose sign-in page they replace.
"""

from django.urls import path

from orchestrator.company_login import pages

urlpatterns = [
    path(
        "login/",
        pages.CompanySignIn.as_view(),
        name="login",
    ),
    path(
        "login/local/",
        pages.EmergencySignIn.as_view(),
        name="local_login",
    ),
    path(
        "login/company/",
        pages.begin,
        name="company_login",
    ),
    path(
        "login/company/again/",
        pages.confirm,
        name="company_confirm",
    ),
    path(
        "login/company/done/",
        pages.callback,
        name="company_callback",
    ),
]
