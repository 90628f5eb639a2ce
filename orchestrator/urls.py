"""Addresses of our own project."""

from django.apps import apps
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("orchestrator.urls_api")),
    path("", include("approvals.urls_pages")),
    path("", include("orchestrator.urls_pages")),
]

handler400 = "orchestrator.views.errors.bad_request"
handler403 = "orchestrator.views.errors.forbidden"
handler404 = "orchestrator.views.errors.not_found"
handler500 = "orchestrator.views.errors.server_error"

if apps.is_installed("orchestrator.company_login"):
    # Before ours, whose sign-in page it replaces.
    urlpatterns.insert(1, path("", include("orchestrator.company_login.urls")))
if apps.is_installed("orchestrator.demo.claims"):
    urlpatterns.append(path("demo/", include("orchestrator.demo.urls")))
