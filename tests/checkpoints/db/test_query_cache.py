"""Rows that are changed, removed or locked by queries whose text is kept."""

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet

from checkpoints.db import query_cache
from checkpoints.models import Run
from tests.support.rows import a_run
from tests.support.statements import counted

pytestmark = pytest.mark.django_db


def _of_graph(graph: str) -> "QuerySet[Any, Any]":
    return Run.objects.filter(graph=graph).order_by().values("id")


def _of_key(graph: str) -> "QuerySet[Any, Any]":
    return Run.objects.filter(key=graph).order_by().values("id")


def _of_none() -> "QuerySet[Any, Any]":
    return Run.objects.filter(id__in=[]).values("id")


def test_only_the_rows_of_the_query_are_changed() -> None:
    changed = a_run(graph="100 %")
    other = a_run(graph="other")
    columns = {"label": "new", "facts": {"a": 1}}
    assert query_cache.update_selected(Run, _of_graph, "100 %", columns=columns) == 1
    changed.refresh_from_db()
    other.refresh_from_db()
    assert (changed.label, changed.facts) == ("new", {"a": 1})
    assert other.label != "new"


def test_a_query_that_can_have_no_row_changes_none() -> None:
    a_run(graph="a")
    assert query_cache.update_selected(Run, _of_none, columns={"label": "new"}) == 0


def test_only_the_rows_of_the_query_are_deleted() -> None:
    a_run(graph="a")
    other = a_run(graph="other")
    query_cache.delete_selected(Run, _of_graph, "a")
    assert Run.objects.get() == other


def test_rows_of_several_queries_are_locked_by_one_statement() -> None:
    a_run(graph="a")
    with transaction.atomic(), counted() as sent:
        query_cache.lock_selected((_of_graph, _of_key), "a")
    locks = [text.count("FOR SHARE") for text in sent if "FOR SHARE" in text]
    assert locks == ([2] if connection.vendor == "postgresql" else [])
