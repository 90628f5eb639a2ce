"""The app of the graphs that the old database knows."""

from django.apps import AppConfig


class OldDatabase(AppConfig):
    name = "tests.stories.old_database"
