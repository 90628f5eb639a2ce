"""Addresses of the log-in of a company; they come before those of `orchestrator.urls`,
whose pages for signing in and out they replace.
"""

from importlib.util import find_spec

from django.urls import path

from orchestrator.company_login import pages

urlpatterns = [
    path(
        "login/",
        pages.CompanySignIn.as_view(),
        name="login",
    ),
    path(
        "logout/",
        pages.CompanySignOut.as_view(),
        name="logout",
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
    path(
        "login/company/left/",
        pages.signed_out,
        name="company_left",
    ),
]

# Its packages come with another extra.
if find_spec("onelogin"):
    from orchestrator.company_login import saml_pages

    urlpatterns += [
        path(
            "login/company/saml/",
            saml_pages.receive,
            name="company_saml",
        ),
        path(
            "login/company/saml/done/",
            saml_pages.arrive,
            name="company_saml_done",
        ),
        path(
            "login/company/saml/metadata/",
            saml_pages.metadata,
            name="company_saml_metadata",
        ),
    ]
