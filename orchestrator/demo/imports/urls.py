"""Addresses of the demo's import: the table that it filled."""

from django.urls import path

from orchestrator.demo.imports.views import imported

urlpatterns = [path("<uuid:run>.csv", imported, name="demo_imported")]
