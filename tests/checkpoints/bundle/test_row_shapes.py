"""Whatever a trusted house puts into the JSON of its rows: its bundle is refused by
name, or every page opens.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from approvals.models import ApprovalRequest, Receipt
from checkpoints.bundle.row_json import columns_of, payload_names
from checkpoints.bundle.tables import TABLES
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine.errors import CountersignError, InvalidBundle
from tests.support import cast
from tests.support.bundles import (
    KEY,
    PUBLIC,
    foreign,
    forgotten,
    hashed_anew,
    lines_of,
    loaded,
    signed_run,
    written,
)
from tests.support.forging import rewrite
from tests.support.sealed_tables import ONE_KEY
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)
NONSENSE = (7, [], {}, "x", [7], [[]], [{}], {"x": 7}, None)
TABS = ("changed", "state", "writes", "results", "memory", "events")
EACH = int(os.environ.get("COUNTERSIGN_BUNDLE_SHAPES", "11"))
"""Of so many changes one is tried; in full (COUNTERSIGN_BUNDLE_SHAPES=1) each."""


@pytest.fixture
def bodies(tmp_path: Path, people: cast.People, configure: Any) -> list[dict[str, Any]]:
    configure(TRUSTED_KEYS={"north": PUBLIC.hex()})
    return lines_of(foreign(signed_run(tmp_path, people)))


def _sent(bodies: list[dict[str, Any]], at: int, **columns: Any) -> bytes:
    """The bundle with other columns in one row, and hashes that fit."""
    document = json.loads(json.dumps(bodies))
    document[at]["row"] |= columns
    return written(hashed_anew(document), KEY)


def _at(bodies: list[dict[str, Any]], kind: str) -> int:
    return next(n for n, body in enumerate(bodies) if body["kind"] == kind)


def _packed(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _changes(bodies: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Nonsense for each JSON and payload column, of each kind of row in the last one,
    and in each line of the log.
    """
    for kind in dict.fromkeys(body["kind"] for body in bodies if "row" in body):
        model: Any = Run if kind == "run" else TABLES[kind].model
        rows = [n for n, body in enumerate(bodies) if body["kind"] == kind]
        named = [
            column.name
            for column in columns_of(model)
            if column.get_internal_type() == "JSONField"
        ]
        for at in rows if kind == "event" else rows[-1:]:
            for value in NONSENSE:
                yield from ((at, {name: value}) for name in named)
                yield from (
                    (at, {name: _packed(value)})
                    for name in sorted(payload_names(model))
                )


def test_nonsense_in_any_column_is_refused_by_name_or_every_page_opens(
    bodies: list[dict[str, Any]], people: cast.People
) -> None:
    before = contents()
    changes = list(_changes(bodies))
    taken = 0
    client = Client(raise_request_exception=False)
    client.force_login(people.steward)
    for at, columns in changes[::EACH]:
        with suppress(CountersignError):  # anything else is a defect
            run = loaded(_sent(bodies, at, **columns))
            taken += 1
            broken = [
                page for page in _pages(run) if client.get(page).status_code >= 500
            ]
            assert broken == [], (bodies[at]["kind"], columns)
            forgotten(run)
    print(f"{len(changes) // EACH} of {len(changes)} changes, {taken} taken in")
    assert contents() == before


def _pages(run: Run) -> Iterator[str]:
    page = reverse("run", args=[run.id])
    points = list(Checkpoint.objects.filter(run=run.id).order_by("seq"))
    yield from (f"{page}?tab={tab}&at={points[-2].seq}" for tab in TABS)
    yield from (
        f"{page}?at={points[-1].seq}",
        reverse("review", args=[run.id]),
        reverse("runs"),
    )
    yield f"{reverse('go_on', args=[points[-1].id])}?how=fork"
    yield from (
        reverse("receipt", args=[receipt.id])
        for receipt in Receipt.objects.filter(run=run.id)
    )


REFUSED = {
    "checkpoint": {"nodes": (7, [7], [{}], [{"node": 7}]), "changed": (7, [[]], [{}])},
    "receipt": {"lines": (7, [7], [{}], {"x": 7})},
    "request": {
        "policy": ([], {}, 7),
        "facts": ("7", '"x"', "[7]", "[{}]"),
        "title": ("7", "[]", "{}"),
    },
    "write": {"base": ("7", "{}", "[]"), "shown": ("7",)},
    "event": {"payload": ("7", "[]", "{}", '"x"')},
    "run": {"facts": (7, [], "x"), "error": ("7", "[]")},
    "decision": {"reason": ("7", "{}")},
    "result": {"error": ("7", "[]"), "settled_reason": ("7", "{}")},
}


def test_what_no_page_could_show_is_refused_before_anything_is_written(
    bodies: list[dict[str, Any]],
) -> None:
    before = contents()
    for kind, columns in REFUSED.items():
        for name, values in columns.items():
            for value in values:
                with pytest.raises(InvalidBundle) as refused:
                    loaded(_sent(bodies, _at(bodies, kind), **{name: value}))
                assert refused.value.facts["reason"], (kind, name, value)
    assert contents() == before


@pytest.mark.parametrize(
    ("column", "value"), [("title", 7), ("facts", "x"), ("facts", [{}]), ("why", [])]
)
def test_what_no_page_could_show_is_refused_in_an_encrypted_run_too(
    column: str, value: Any, tmp_path: Path, people: cast.People, configure: Any
) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})
    run = signed_run(tmp_path, people, encrypted=True)
    rewrite(ApprovalRequest.objects.filter(run=run.id)[0], **{column: pack_json(value)})
    data = foreign(run)
    before = contents()
    with pytest.raises(InvalidBundle, match=column):
        loaded(data)
    assert contents() == before


MANIFEST = {
    "key": (None, 7, "x" * 5000, "\x00", "\ud800"),
    "data_key": (7, "abc", None, {}),
    "exported_at": (7, "", "\ud800"),
    "removed": (7, {}, {"events": [7], "checkpoints": []}),
    "erasures": (7, [7], [{}], None),
    "run": (7, "x", "\ud800"),
}


def test_a_manifest_that_says_nonsense_is_refused_by_name(
    bodies: list[dict[str, Any]],
) -> None:
    before = contents()
    for name, values in MANIFEST.items():
        absent = {key: value for key, value in bodies[0].items() if key != name}
        for manifest in (absent, *({**bodies[0], name: value} for value in values)):
            with pytest.raises(InvalidBundle) as refused:
                loaded(written([manifest, *bodies[1:]], KEY))
            assert refused.value.facts["reason"].encode(), (name, manifest.get(name))
    assert contents() == before


@pytest.mark.parametrize(
    "note",
    [
        7,
        [],
        {"record": "x", "columns": {}},
        {"record": "", "columns": {}},
        {"record": []},
    ],
)
def test_a_note_of_an_erasure_that_says_nonsense_is_refused_by_name(
    bodies: list[dict[str, Any]], note: Any
) -> None:
    at = _at(bodies, "checkpoint")
    before = contents()
    with pytest.raises(InvalidBundle) as refused:
        loaded(
            written(
                [*bodies[:at], {**bodies[at], "erased": note}, *bodies[at + 1 :]], KEY
            )
        )
    assert refused.value.facts["reason"]
    assert contents() == before
