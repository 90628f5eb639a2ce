"""csv_import: checks a CSV file, asks people about each row that is wrong, imports the
right and the corrected ones.

The file stays where it is: the state holds only corrections and a cursor, whatever the
number of rows.
"""

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from checkpoints.uploads import open_ref
from orchestrator.demo.imports import checking, importing
from orchestrator.demo.imports.reader import Delimiter
from orchestrator.demo.imports.values import (
    COLUMNS,
    Checked,
    Column,
    Correction,
    Cursor,
    Report,
)
from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Context,
    Fact,
    FileRef,
    Gate,
    Graph,
    Show,
    Write,
)


class Input(BaseModel):
    """The input of an import."""

    rows: FileRef = Field(title="CSV file", description="UTF-8, with a header line")
    delimiter: Delimiter = Field(
        default="auto", description="Separator; auto detects it from the header"
    )
    columns: list[Column] = Field(
        default=list(COLUMNS),
        min_length=1,
        max_length=200,
        description="What each column must hold: text, email, number, date or country."
        " Others are imported as they are",
    )


class State(BaseModel):
    """The state of an import."""

    checked: Checked | None = None
    found: list[Correction] = []
    corrections: Annotated[list[Correction], Append] = []
    cursor: Cursor | None = None
    report: Annotated[Report | None, Artifact] = None


graph = Graph(
    "csv_import",
    description="Imports a file of customers, once somebody has approved the rows that look wrong.",
    input=Input,
    state=State,
    label="Import of {rows[name]}",
    facts=[Fact("File", "input.rows.name")],
)


@graph.node(effect="read", timeout=300)
def check(state: Any, ctx: Context) -> Any:
    """Go through the file once and propose a correction for each bad row."""

    def progress(rows: int, of: int) -> None:
        ctx.report(rows, of, note=f"{rows:,} rows checked")

    with open_ref(ctx.input.rows) as file:
        checked, corrections = checking.check(
            file,
            name=ctx.input.rows.name,
            columns=ctx.input.columns,
            delimiter=ctx.input.delimiter,
            report=progress,
        )
    return {
        "checked": checked,
        "found": corrections,
        "cursor": importing.beginning(checked),
    }


@graph.node(
    effect="human",
    gate=Gate(
        reviewers=["group:reviewer"],
        title="Correct {input.rows.name} before it is imported?",
        facts=[
            Fact("File", "input.rows.name"),
            Fact("Rows", "checked.rows"),
            Fact("To correct", "checked.bad"),
        ],
        shows=["checked"],
        writes={
            "corrections": Show(
                label="Correct a row",
                reversible="An imported row can be changed in the table.",
                change=("before", "after"),
            )
        },
    ),
)
def propose(state: Any, ctx: Context) -> Any:
    """Propose each correction as a separate write."""
    return [
        Write("corrections", [correction], label=correction.label)
        for correction in state.found
    ]


@graph.node(effect="write", atomic=True)
def import_rows(state: Any, ctx: Context) -> Any:
    """Write the next few thousand good rows; the loop comes back until the file is
    done.
    """
    before = state.cursor
    ctx.report(
        before.row - 1, state.checked.rows, note=f"{before.imported:,} rows imported"
    )
    with open_ref(ctx.input.rows) as file:
        cursor = importing.import_chunk(
            file,
            run=UUID(str(ctx.run_id)),
            checked=state.checked,
            cursor=state.cursor,
            skipped=[correction.row for correction in state.found],
        )
    ctx.report(
        cursor.row - 1, state.checked.rows, note=f"{cursor.imported:,} rows imported"
    )
    return {"cursor": cursor}


@graph.node(effect="write", atomic=True)
def import_corrected(state: Any, ctx: Context) -> Any:
    """Write the bad rows as people agreed on them, and say what was left out."""
    with open_ref(ctx.input.rows) as file:
        corrected, left_out = importing.import_corrected(
            file,
            run=UUID(str(ctx.run_id)),
            checked=state.checked,
            columns=ctx.input.columns,
            questions=state.found,
            agreed=state.corrections,
            progress=lambda rows: ctx.report(
                rows, state.checked.rows, note=f"{rows:,} rows compared"
            ),
        )
    return {
        "report": importing.report(
            state.checked, state.cursor, corrected=corrected, left_out=left_out
        )
    }


graph.edge(START, "check")
graph.branch(
    "check",
    lambda state: "ask" if state.found else "clean",
    {"ask": "propose", "clean": "import_rows"},
)
# Whatever is rejected stays out; the good rows have nothing to do with it.
graph.edge("propose", "import_rows", when=("approved", "partial", "rejected"))
graph.branch(
    "import_rows",
    lambda state: "more" if state.cursor.offset < state.checked.size else "done",
    {"more": "import_rows", "done": "import_corrected"},
)
graph.edge("import_corrected", END)
