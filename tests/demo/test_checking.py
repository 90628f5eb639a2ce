"""CSV files of every sort go through the check: good ones, messy ones, and things that
are no CSV at all.
"""

from io import BytesIO

import pytest
from pydantic import ValidationError

from orchestrator.demo.imports.checking import check
from orchestrator.demo.imports.messy import messy_csv
from orchestrator.demo.imports.reader import CsvProblem, Delimiter, records
from orchestrator.demo.imports.values import COLUMNS, Checked, Column, Correction

HEADER = "id,email,amount,date,country\n"
GOOD = "1,a@example.com,10.00,2026-01-01,DE\n"


def checked(
    content: str | bytes,
    *,
    delimiter: Delimiter = "auto",
    columns: tuple[Column, ...] = COLUMNS,
) -> tuple[Checked, list[Correction]]:
    data = content.encode() if isinstance(content, str) else content
    return check(
        BytesIO(data),
        name="rows.csv",
        columns=columns,
        delimiter=delimiter,
        report=lambda rows, of: None,
    )


def test_a_right_file_needs_no_correction() -> None:
    table, corrections = checked(HEADER + GOOD)
    assert table.rows == 1
    assert table.delimiter == ","
    assert corrections == []


def test_a_bad_row_is_named_as_a_spreadsheet_counts_it() -> None:
    _, (correction,) = checked(HEADER + GOOD + "2, b@example.com,10,2026-01-02,DE\n")
    assert correction.row == 3
    assert correction.label == "Row 3: email"
    assert correction.before == {"email": " b@example.com"}
    assert correction.after == {"email": "b@example.com"}


def test_one_row_with_two_faults_is_one_correction() -> None:
    _, (correction,) = checked(HEADER + '1,a@example.com,"1,50",01.02.2026,DE\n')
    assert correction.after == {"amount": "1.50", "date": "2026-02-01"}


def test_a_row_that_nobody_can_mend_is_proposed_to_be_left_out() -> None:
    _, (correction,) = checked(HEADER + "1,a@example.com,soon,2026-01-01,DE\n")
    assert correction.after is None
    assert "leave the row out" in correction.label


def test_the_second_row_with_the_same_id_is_bad() -> None:
    _, (correction,) = checked(HEADER + GOOD + GOOD)
    assert correction.row == 3
    assert correction.problems == {"id": "the same as in row 2"}
    assert correction.after is None


def test_a_mended_id_may_not_repeat_another() -> None:
    _, (correction,) = checked(HEADER + GOOD + GOOD.replace("1,a", " 1 ,a"))
    assert correction.after is None


def test_a_row_with_too_few_or_too_many_cells_is_bad() -> None:
    _, (short, long) = checked(
        HEADER + "1,a@example.com\n" + GOOD.replace("DE", "DE,more")
    )
    assert short.problems == {"cells": "2 instead of 5"}
    assert short.before == {
        "id": "1",
        "email": "a@example.com",
        "amount": "",
        "date": "",
        "country": "",
    }
    assert long.before["country"] == "DE,more"


@pytest.mark.parametrize(("mark", "named"), [(";", ";"), ("\t", "tab"), ("|", "|")])
def test_the_delimiter_is_found_or_taken_as_given(mark: str, named: Delimiter) -> None:
    content = (HEADER + GOOD).replace(",", mark)
    assert checked(content)[0].delimiter == mark
    assert checked(content, delimiter=named)[0].delimiter == mark


def test_a_byte_order_mark_windows_lines_and_quoted_line_ends_are_fine() -> None:
    content = (
        b"\xef\xbb\xbf" + (HEADER.strip() + ",note\n").replace("\n", "\r\n").encode()
    )
    table, corrections = checked(
        content + b'1,a@example.com,1,2026-01-01,DE,"two\r\nlines"\r\n'
    )
    assert table.rows == 1
    assert corrections == []


def test_columns_may_come_in_any_order_and_with_others_between() -> None:
    table, corrections = checked(
        "Country,extra,ID,Amount,Date,E-mail,email\nDE,x,1,2,2026-01-01,y,a@example.com\n"
    )
    assert corrections == []
    assert table.header == [
        "country",
        "extra",
        "id",
        "amount",
        "date",
        "E-mail",
        "email",
    ]


def test_columns_of_ones_own_are_checked() -> None:
    own = (
        Column(name="sku", unique=True),
        Column(name="price", kind="number", required=False),
    )
    _, corrections = checked("sku,price\nA,1\nB,\nB,2\nC,x\n", columns=own)
    assert [
        (correction.row, list(correction.problems)) for correction in corrections
    ] == [
        (4, ["sku"]),
        (5, ["price"]),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "line 1 is empty"),
        (HEADER.encode(), "no rows"),
        (GOOD.encode(), "line 1 must name the columns"),
        (b"name,age\nAnn,3\n", "id, email, amount, date, country is missing"),
        (b"PK\x03\x04rest of a spreadsheet", "spreadsheet"),
        ("\ufeffid,email".encode("utf-16-le"), "UTF-16"),
        (HEADER.encode() + b"1,\xe9,1,2026-01-01,DE\n", "line 2 is not UTF-8"),
        (HEADER.encode() + b"1,\x00,1,2026-01-01,DE\n", "line 2 holds binary data"),
        (bytes(range(1, 256)) * 50, "line"),
        (
            HEADER.encode() + GOOD.encode() + b'2,"a@example.com,1,2026-01-01,DE\n' * 3,
            "line 3",
        ),
        (b"id,id,email,amount,date,country\n", "names id twice"),
        (b"id,,email,amount,date,country\n", "column 2 has no name"),
        (HEADER.encode() + b"x" * (1024 * 1024 + 10), "longer than 1 MiB"),
    ],
)
def test_what_is_no_such_csv_is_refused_with_place_and_cure(
    content: bytes, message: str
) -> None:
    with pytest.raises(CsvProblem, match=message):
        checked(content)


def test_a_file_with_more_bad_rows_than_people_can_look_at_is_refused() -> None:
    rows = "".join(f"{n},nobody,1,2026-01-01,DE\n" for n in range(1001))
    with pytest.raises(
        CsvProblem, match="1,001 of 1,001 rows.*The first is row 2, email"
    ):
        checked(HEADER + rows)


def test_an_edit_is_checked_like_the_file() -> None:
    _, (correction,) = checked(HEADER + "1,nobody,1,2026-01-01,DE\n")
    proposed = correction.model_dump()
    assert Correction.model_validate(
        {**proposed, "after": {"email": "a@example.com"}}
    ).after
    for after in (
        {"email": "still nobody"},
        {},
        {"email": "a@example.com", "amount": "1"},
        {"email": 5},
    ):
        with pytest.raises(ValidationError):
            Correction.model_validate({**proposed, "after": after})


def test_reading_goes_on_from_any_byte_where_a_row_ended() -> None:
    data = BytesIO(
        (
            HEADER + "".join(GOOD.replace("1,a", f'"{n}\n",a') for n in range(20))
        ).encode()
    )
    start = len(HEADER)
    whole = list(records(data, delimiter=",", offset=start, row=1, line=1))
    for place in whole[:-1]:
        rest = list(
            records(
                data, delimiter=",", offset=place.end, row=place.row, line=place.line
            )
        )
        assert rest == whole[whole.index(place) + 1 :]


def test_ten_thousand_rows_with_fifty_bad_ones_give_fifty_corrections_and_reports() -> (
    None
):
    reports: list[tuple[int, int]] = []
    content = BytesIO(messy_csv(10_000, 50).encode())
    table, corrections = check(
        content,
        name="r",
        columns=COLUMNS,
        delimiter="auto",
        report=lambda rows, of: reports.append((rows, of)),
    )
    assert table.rows == 10_000
    assert len(corrections) == 50
    assert reports[0] == (1000, 10_000)
    assert reports[-1] == (10_000, 10_000)


def test_the_shipped_sample_is_what_the_script_makes() -> None:
    from pathlib import Path

    from orchestrator.demo import imports

    shipped = Path(str(imports.__file__)).parent / "data" / "messy.csv"
    assert shipped.read_text() == messy_csv()
    assert len(checked(shipped.read_bytes())[1]) == 24
