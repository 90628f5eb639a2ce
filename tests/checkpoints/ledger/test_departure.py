"""The rows of lines: what is written where one begins, and that a worker believes none
that was altered.
"""

import pytest

from checkpoints import lines
from checkpoints.core.status import Status
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, Run, RunLine
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from tests.support import cast
from tests.support.forging import tamper
from tests.support.paid_claims import PAID, paid
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def _rewound(people: cast.People) -> Run:
    PAID.clear()
    run = paid("lined", people)
    return runs.rewind(run.id, f"{run.key}:step-1", by=people.starter, reason="why")


def test_a_line_knows_where_it_departed(people: cast.People) -> None:
    run = _rewound(people)
    row = RunLine.objects.get(run=run)
    departure = Checkpoint.objects.get(run=run, seq=1)
    assert row.number == 2
    assert row.travel == "rewind"
    assert row.parent_line == 1
    assert row.departure == departure.id
    assert row.departure_seq == 1
    assert row.departure_hash == departure.content_hash
    assert row.stops == ["pay"]
    assert row.by == people.starter
    first = Checkpoint.objects.get(id=run.head)
    assert first.line == 2
    assert first.seq == 5
    assert first.parent == departure.id
    assert first.anchor == 5
    assert bool(first.snapshot)
    assert lines.ancestry(run.id, 2) == ((2, None), (1, 1))


def test_the_way_to_a_checkpoint_leads_through_older_lines_and_origins(
    people: cast.People,
) -> None:
    run = runs.advance(_rewound(people).id)
    fork = runs.fork(f"{run.key}:at-6", by=people.starter)
    assert lines.past(fork.id, 1) == [
        Stretch(fork.id, 1, None),
        Stretch(run.id, 2, 6),
        Stretch(run.id, 1, 1),
    ]
    with counted() as sent:
        lines.past(fork.id, 1)
    assert len(sent) == 2, "one for each run"


@pytest.mark.parametrize("gone", [False, True])
def test_a_line_that_was_altered_is_not_believed(
    people: cast.People, *, gone: bool
) -> None:
    run = _rewound(people)
    row = RunLine.objects.get(run=run)
    if gone:
        row.delete()
    else:
        tamper(row, stops=[])
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert len(PAID) == 1
    with pytest.raises(TamperedRow):
        runs.plan(f"{run.key}:at-5")
