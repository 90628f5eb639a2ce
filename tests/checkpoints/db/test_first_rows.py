"""The first rows of each of several sources."""

import pytest

from checkpoints.db.first_rows import (
    SOURCE,
    all_of,
    count_first,
    each_source,
    first_of_all,
    first_of_each,
)
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


@pytest.mark.parametrize("order", [("version", "id"), ("-version", "-id")])
def test_all_sources_together_have_their_first_rows(order: tuple[str, ...]) -> None:
    runs = []
    for number, graph in enumerate(("b", "a", "c", "a", "a", "b", "b")):
        runs.append(a_run(graph=graph, version=str(number // 2)))
    rows = Run.objects.filter(graph=SOURCE).order_by(*order)
    expected = list(Run.objects.filter(graph__in=["a", "b"]).order_by(*order))
    table = each_source(["a", "b", "it's %s"])
    for first in (1, 4, None):
        ids = first_of_all(table, rows, "id", first)
        read = Run.objects.filter(id__in=ids).order_by(*order)
        assert list(read) == expected[:first]
        beside = first_of_each(["c"], rows, "id", 1)
        both = Run.objects.filter(id__in=all_of([ids, beside]))
        assert set(both) == {*expected[:first], runs[2]}


def test_a_value_that_several_sources_have_counts_once() -> None:
    for graph in ("a", "b", "c"):
        a_run(graph=graph, version="7")
    rows = Run.objects.filter(graph=SOURCE).order_by("key")
    assert count_first(["a", "b"], rows, "version", most=9) == 1
    assert count_first(["a", "b"], rows, "id", most=9) == 2
    assert count_first(["a", "b"], rows, "id", most=1) == 1
    assert count_first([], rows, "id", most=9) == 0
