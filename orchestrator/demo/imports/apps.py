"""The CSV import of the demo as a Django app."""

from django.apps import AppConfig


class ImportsConfig(AppConfig):
    """Rows of CSV files become rows of a table, corrected where people agree."""

    name = "orchestrator.demo.imports"
    label = "demo_imports"
    verbose_name = "Demo: imports"
    default_auto_field = "django.db.models.BigAutoField"
