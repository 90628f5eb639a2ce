"""Graphs for tests, found like those of any app."""

from django.apps import AppConfig


class GraphsAppConfig(AppConfig):
    name = "tests.graphs_app"
    label = "graphs_app"
