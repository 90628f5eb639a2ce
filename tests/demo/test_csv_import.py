"""csv_import, played in memory, from the file to the table."""

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest

from checkpoints import uploads
from orchestrator.demo.imports import importing
from orchestrator.demo.imports.graphs import graph
from orchestrator.demo.imports.messy import messy_csv
from orchestrator.demo.imports.models import ImportedRow
from orchestrator.engine import play

pytestmark = pytest.mark.django_db(transaction=True)

HEADER = "id,email,amount,date,country\n"
GOOD = "1,a@example.com,10.00,2026-01-01,DE\n"
SPACED = "2, b@example.com,20.00,2026-01-02,FR\n"
HOPELESS = "3,c@example.com,soon,2026-01-03,IT\n"


def rows(content: str | bytes) -> dict[str, Any]:
    data = content.encode() if isinstance(content, str) else content
    return {"rows": uploads.save_upload(BytesIO(data), name="rows.csv", by=None)}


def all_of(verdict: str) -> Any:
    return lambda request: {write.position: (verdict, None) for write in request.writes}


def table() -> dict[int, str]:
    return {row.row: row.values["email"] for row in ImportedRow.objects.all()}


def test_a_right_file_is_imported_without_asking() -> None:
    played = play(graph, rows(HEADER + GOOD))
    assert played.status == "completed"
    assert table() == {2: "a@example.com"}
    assert ImportedRow.objects.get().values == {
        "id": "1",
        "email": "a@example.com",
        "amount": "10.00",
        "date": "2026-01-01",
        "country": "DE",
    }


def test_each_bad_row_is_a_pending_write_of_its_own_and_nothing_is_imported_yet() -> (
    None
):
    played = play(graph, rows(HEADER + GOOD + SPACED + HOPELESS))
    assert played.status == "paused"
    (request,) = played.gates
    assert [write.label for write in request.writes] == [
        "Row 3: email",
        "Row 4: amount (no correction known, leave the row out)",
    ]
    assert table() == {}


def test_approved_corrections_are_imported_and_hopeless_rows_left_out() -> None:
    played = play(
        graph, rows(HEADER + GOOD + SPACED + HOPELESS), decisions=all_of("approve")
    )
    assert table() == {2: "a@example.com", 3: "b@example.com"}
    assert [row.corrected for row in ImportedRow.objects.all()] == [False, True]
    report = played.state.report
    assert report.rows == 3
    assert report.imported == 2
    assert report.corrected == 1
    assert [(task.row, task.why) for task in report.left_out] == [
        (4, "left out, as agreed")
    ]


def test_rejected_rows_stay_out_and_the_good_ones_are_imported() -> None:
    played = play(graph, rows(HEADER + GOOD + SPACED), decisions=all_of("reject"))
    assert played.status == "completed"
    assert table() == {2: "a@example.com"}
    assert [(task.row, task.why) for task in played.state.report.left_out] == [
        (3, "rejected")
    ]


def test_an_edited_correction_is_imported_as_edited() -> None:
    def decide(request: Any) -> Any:
        (write,) = request.writes
        return {0: ("edit", [{**write.value[0], "after": {"amount": "12.00"}}])}

    play(graph, rows(HEADER + HOPELESS), decisions=decide)
    assert ImportedRow.objects.get().values["amount"] == "12.00"


def test_an_edit_that_clashes_with_another_row_is_left_out_and_said_so() -> None:
    def decide(request: Any) -> Any:
        (write,) = request.writes
        return {0: ("edit", [{**write.value[0], "after": {"id": "1"}}])}

    played = play(
        graph, rows(HEADER + GOOD + GOOD.replace("1,a", " 2,b")), decisions=decide
    )
    assert table() == {2: "a@example.com"}
    assert [task.why for task in played.state.report.left_out] == [
        "id: the same as in row 2"
    ]


def test_an_edit_cannot_smuggle_in_a_row_that_was_not_asked_about() -> None:
    def decide(request: Any) -> Any:
        (write,) = request.writes
        return {0: ("edit", [{**write.value[0], "row": 2}])}

    played = play(graph, rows(HEADER + GOOD + SPACED), decisions=decide)
    assert table() == {2: "a@example.com"}
    assert [task.row for task in played.state.report.left_out] == [3]


def test_a_ragged_row_can_be_mended_by_an_edit() -> None:
    whole = {
        "id": "2",
        "email": "b@example.com",
        "amount": "5",
        "date": "2026-01-02",
        "country": "FR",
    }

    def decide(request: Any) -> Any:
        (write,) = request.writes
        return {0: ("edit", [{**write.value[0], "after": whole}])}

    play(graph, rows(HEADER + GOOD + "2,b@example.com\n"), decisions=decide)
    assert ImportedRow.objects.get(row=3).values == whole


def test_a_long_file_is_imported_in_a_loop_of_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importing, "CHUNK", 7)
    content = messy_csv(40, 6)
    played = play(graph, rows(content), decisions=all_of("approve"))
    loops = sum(
        task.node == "import_rows" for step in played.supersteps for task in step.tasks
    )
    assert loops == 6
    report = played.state.report
    assert report.imported == ImportedRow.objects.count() == 40 - len(report.left_out)


def test_importing_again_under_the_same_run_replaces_and_never_doubles() -> None:
    for _ in range(2):
        play(graph, rows(HEADER + GOOD + SPACED), decisions=all_of("approve"))
    assert table() == {2: "a@example.com", 3: "b@example.com"}
    assert set(ImportedRow.objects.values_list("run", flat=True)) == {UUID(int=0)}


def test_columns_of_ones_own_are_imported() -> None:
    columns = [{"name": "sku", "unique": True}, {"name": "price", "kind": "number"}]
    play(graph, {**rows("sku;price;colour\nA;1;red\n"), "columns": columns})
    assert ImportedRow.objects.get().values == {
        "sku": "A",
        "price": "1",
        "colour": "red",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"name,age\nAnn,3\n", "line 1 must name the columns"),
        (HEADER.encode() + b"1,\xe9,1,2026-01-01,DE\n", "line 2 is not UTF-8"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "line 1"),
    ],
)
def test_nonsense_fails_the_run_with_line_and_cure_and_imports_nothing(
    content: bytes, message: str
) -> None:
    played = play(graph, rows(content))
    assert played.status == "failed"
    assert played.error is not None
    assert message in played.error.message
    assert table() == {}
