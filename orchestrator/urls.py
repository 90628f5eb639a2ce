"""Addresses of our own project."""

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

urlpatterns = [
    path("login/", LoginView.as_view(template_name="orchestrator/login.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
]

if apps.is_installed("orchestrator.demo.claims"):
    urlpatterns += [
        path("demo/", include("orchestrator.demo.claims.urls")),
        path("demo/rows/", include("orchestrator.demo.imports.urls")),
    ]
