"""Addresses of the pages of floor 3. Those of floor 2 are in `approvals.urls_pages`."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from orchestrator.views import (
    account,
    cancel,
    figures,
    graphs,
    home,
    run,
    runs,
    settle,
    start,
    state_value,
    workers,
)
from orchestrator.views.bundles import pages as bundles
from orchestrator.views.compare.page import compare_page
from orchestrator.views.go_on.page import go_on_page
from orchestrator.views.passkeys import pages as passkeys
from orchestrator.views.retention.erase import erase_page
from orchestrator.views.retention.pin import pin_page
from orchestrator.views.reviews.reopenings import reopen_page

urlpatterns = [
    path("", home.home, name="home"),
    path("login/", home.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("account/", account.account_page, name="account"),
    path("account/shortcuts/", account.shortcuts, name="shortcuts"),
    path(
        "account/passkeys/options/", passkeys.begin_registration, name="passkey_options"
    ),
    path("account/passkeys/", passkeys.register, name="passkey_register"),
    path("account/passkeys/<int:key>/name/", passkeys.rename, name="passkey_rename"),
    path("account/passkeys/<int:key>/revoke/", passkeys.revoke, name="passkey_revoke"),
    path("account/theme/", home.theme, name="theme"),
    path("figures/", figures.figures_page, name="figures"),
    path("runs/", runs.runs_page, name="runs"),
    # Below "-", because `runs/rows/` would be the page of a run with the key "rows".
    path("runs/-/rows/", runs.runs_rows, name="run_rows"),
    path("runs/-/news/", runs.runs_news, name="run_news"),
    path("runs/-/import/", bundles.import_page, name="import"),
    path("runs/<str:ref>/", run.run_page, name="run"),
    path("runs/<str:ref>/export/", bundles.export_page, name="export"),
    path("runs/<str:ref>/resume/", run.resume_page, name="resume"),
    path("runs/<str:ref>/cancel/", cancel.cancel_page, name="cancel"),
    path("runs/<str:ref>/erase/", erase_page, name="erase"),
    path("runs/<str:ref>/settle/", settle.settle_page, name="settle"),
    path(
        "reviews/<str:ref>/reopen/<uuid:request_id>/",
        reopen_page,
        name="reopen",
    ),
    path("checkpoints/<str:checkpoint>/go-on/", go_on_page, name="go_on"),
    path(
        "checkpoints/<str:checkpoint>/value/",
        state_value.state_value,
        name="state_value",
    ),
    path("checkpoints/<str:checkpoint>/pin/", pin_page, name="pin"),
    path("compare/", compare_page, name="compare"),
    path("graphs/", graphs.catalogue, name="graphs"),
    path("graphs/<str:name>/", graphs.graph_page, name="graph"),
    path("graphs/<str:name>/start/", start.start_page, name="start"),
    path("workers/", workers.workers_page, name="workers"),
]
