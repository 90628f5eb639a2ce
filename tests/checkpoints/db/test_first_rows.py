"""The first rows of each of several sources."""

import pytest

from checkpoints.db.first_rows import SOURCE, count_first, first_of_each
from checkpoints.models import Run
from tests.support.rows import a_run

pytestmark = pytest.mark.django_db


def test_each_source_has_its_first_rows() -> None:
    for graph in ("b", "a", "c", "a", "a", "b"):
        a_run(graph=graph)
    rows = Run.objects.filter(graph=SOURCE).order_by("key")
    ids = first_of_each(["a", "b", "it's %s"], rows, "id", 2)
    first = Run.objects.filter(id__in=ids)
    assert sorted(run.graph for run in first) == ["a", "a", "b", "b"]
    assert Run.objects.filter(id__in=first_of_each([], rows, "id", 2)).count() == 0
    whole = first_of_each(["a", "b"], rows, "id", None)
    assert Run.objects.filter(id__in=whole).count() == 5


def test_a_value_that_several_sources_have_counts_once() -> None:
    for graph in ("a", "b", "c"):
        a_run(graph=graph, version="7")
    rows = Run.objects.filter(graph=SOURCE).order_by("key")
    assert count_first(["a", "b"], rows, "version", most=9) == 1
    assert count_first(["a", "b"], rows, "id", most=9) == 2
    assert count_first(["a", "b"], rows, "id", most=1) == 1
    assert count_first([], rows, "id", most=9) == 0
