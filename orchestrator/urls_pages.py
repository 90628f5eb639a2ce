"""Addresses of the pages of floor 3. Those of floor 2 stand in `approvals.urls_pages`."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from orchestrator.views import cancel, graphs, home, run, runs, settle, start, workers

urlpatterns = [
    path("", home.home, name="home"),
    path("login/", home.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("account/theme/", home.theme, name="theme"),
    path("runs/", runs.page, name="runs"),
    path("runs/-/rows/", runs.rows, name="run_rows"),
    path("runs/-/news/", runs.news, name="run_news"),
    path("runs/<str:ref>/", run.page, name="run"),
    path("runs/<str:ref>/resume/", run.resume, name="resume"),
    path("runs/<str:ref>/cancel/", cancel.page, name="cancel"),
    path("runs/<str:ref>/settle/", settle.page, name="settle"),
    path("graphs/", graphs.catalogue, name="graphs"),
    path("graphs/<str:name>/", graphs.page, name="graph"),
    path("graphs/<str:name>/start/", start.page, name="start"),
    path("workers/", workers.page, name="workers"),
]
