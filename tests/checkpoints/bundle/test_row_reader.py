"""Rows back from lines of a bundle: a column has the form that it must have, but for
what was erased of it.
"""

from pathlib import Path
from typing import Any

import pytest

from checkpoints.bundle.row_reader import row_of
from checkpoints.bundle.row_shapes import RESULT
from checkpoints.models import TaskResult
from tests.support import cast
from tests.support.bundles import exported, lines_of, signed_run

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_column_of_which_something_was_erased_needs_no_form(
    tmp_path: Path, people: cast.People
) -> None:
    bodies = lines_of(exported(signed_run(tmp_path, people)))
    said = next(body["row"] for body in bodies if body["kind"] == "result") | {
        "settled_reason": '{"erased":true}'
    }
    options: dict[str, Any] = {"encrypted": False, "people": {}, "shapes": RESULT}
    assert row_of(TaskResult, said, **options, erased={"settled_reason"}).settled_reason
    with pytest.raises(ValueError, match="settled_reason has another form"):
        row_of(TaskResult, said, **options)
