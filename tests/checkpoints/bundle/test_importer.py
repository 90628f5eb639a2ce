"""A bundle of a trusted house comes in as a run that can be read and forked, no more;
bad ones change nothing.
"""

import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals import reviews
from approvals.models import ApprovalRequest, Decision, RequestComment
from checkpoints import bundle, timeline
from checkpoints.bundle import importer
from checkpoints.models import AuditLine, BundleImport, Checkpoint, PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import (
    InvalidBundle,
    InvalidValue,
    KeyConflict,
    UnknownThing,
    WrongKey,
    WrongStatus,
)
from tests.support import cast, small_graphs
from tests.support import sealed_graphs as graphs
from tests.support.bundles import (
    KEY,
    PUBLIC,
    ReplacedFile,
    exported,
    foreign,
    forgotten,
    hashed_anew,
    lines_of,
    loaded,
    signed_run,
    written,
)
from tests.support.paid_claims import claim
from tests.support.sealed_tables import ONE_KEY
from tests.support.table_contents import contents

OTHER = "01890a5d-ac96-774b-bcce-b302099a8057"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def keys(configure: Any) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def run(request: pytest.FixtureRequest, tmp_path: Path, people: cast.People) -> Run:
    return signed_run(tmp_path, people, encrypted=request.param)


def test_an_imported_run_is_there_with_all_that_it_had_and_verifies(
    run: Run, people: cast.People
) -> None:
    state = timeline.state_at(run.head)
    events = list(timeline.events(run.id).values_list("seq", "type", "hash"))
    data = foreign(run)
    imported = loaded(data, by=people.steward)
    assert imported.id == run.id
    assert imported.imported is True
    assert imported.status == "completed"
    assert imported.key == f"{run.key}~{str(run.id)[-8:]}"
    assert timeline.state_at(imported.head) == state
    assert (
        list(timeline.events(imported.id).values_list("seq", "type", "hash")) == events
    )
    assert verify_run(imported.id) == []
    assert [decision.by_name for decision in Decision.objects.filter(run=run.id)] == [
        people.reviewer.get_username()
    ] * 2
    bundle_import = imported.bundle_import
    assert bundle_import.signer_name == "north"
    assert bundle_import.signer == PUBLIC.hex()
    assert bundle_import.origin_key == run.key
    assert bundle_import.by == people.steward
    assert AuditLine.objects.get(kind="run_imported").run == run.id


def test_people_of_another_house_are_nobody_here_and_those_of_ones_own_are_themselves(
    run: Run,
) -> None:
    own = exported(run)
    data = foreign(run)
    imported = loaded(data)
    assert set(
        Decision.objects.filter(run=imported.id).values_list("by", flat=True)
    ) == {None}
    forgotten(imported)
    loaded(own)
    assert None not in set(
        Decision.objects.filter(run=run.id).values_list("by", flat=True)
    )
    assert verify_run(run.id) == []


def test_only_the_people_that_the_bundle_names_are_read(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    own = exported(run)
    forgotten(run)
    with CaptureQueriesContext(connection) as queries:
        loaded(own)
    table = f'FROM "{User._meta.db_table}"'
    [query] = [
        query["sql"] for query in queries.captured_queries if table in query["sql"]
    ]
    assert people.reviewer.get_username() in query
    assert people.second_reviewer.get_username() not in query


def test_the_run_that_a_bundle_departs_from_stays_until_it_is_taken_in(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    at = Checkpoint.objects.filter(run=run.id, kept=True).order_by("seq")[0]
    fork = runs.fork(at.id, by=people.starter, start=False)
    data = foreign(fork)
    with CaptureQueriesContext(connection) as queries:
        assert loaded(data).imported
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows: it has one writer at a time")
    locked = [
        query["sql"]
        for query in queries.captured_queries
        if "FOR UPDATE" in query["sql"]
    ]
    assert any(run.id.hex in sql.replace("-", "") for sql in locked), locked


def test_an_imported_run_can_be_exported_again(run: Run) -> None:
    again = exported(loaded(foreign(run)))
    assert bundle.verify(io.BytesIO(again), bundle.public_key()).ok


def test_the_same_bundle_again_gives_the_same_run_and_another_of_it_is_a_conflict(
    run: Run,
) -> None:
    bodies = lines_of(exported(run))
    data = foreign(run)
    imported = loaded(data)
    assert loaded(data).id == imported.id
    later = written(
        [{**bodies[0], "exported_at": "2030-01-01T00:00:00+00:00"}, *bodies[1:]], KEY
    )
    before = contents()
    with pytest.raises(KeyConflict, match="is here already"):
        loaded(later)
    assert contents() == before
    assert BundleImport.objects.count() == 1


def _meanwhile(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Do `act` between the look at what is here and the first row that is written."""
    look = importer._imported_before
    done = list[Any]()

    def looked(*arguments: Any) -> Any:
        earlier = look(*arguments)
        if not done:
            done.append(act)
            act()
        return earlier

    monkeypatch.setattr(importer, "_imported_before", looked)


def test_two_concurrent_imports_of_one_bundle_both_return_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = foreign(run)
    _meanwhile(monkeypatch, lambda: loaded(data))
    imported, new = bundle.load_or_find(io.BytesIO(data))
    assert imported.id == run.id
    assert new is False
    assert BundleImport.objects.count() == 1
    assert verify_run(imported.id) == []
    assert AuditLine.objects.filter(kind="run_imported").count() == 1
    assert not AuditLine.objects.filter(kind="refused_import").exists()


def test_the_second_of_two_concurrent_bundles_of_one_run_is_a_conflict(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = lines_of(exported(run))
    data = foreign(run)
    later = written(
        [{**bodies[0], "exported_at": "2030-01-01T00:00:00+00:00"}, *bodies[1:]], KEY
    )
    _meanwhile(monkeypatch, lambda: loaded(later))
    with pytest.raises(KeyConflict, match="is here already"):
        loaded(data)
    assert BundleImport.objects.count() == 1


def test_a_bundle_that_claims_the_id_of_a_run_that_is_here_is_a_conflict(
    run: Run,
) -> None:
    data = written(lines_of(exported(run)), KEY)
    before = contents()
    with pytest.raises(KeyConflict):
        loaded(data)
    assert contents() == before
    assert AuditLine.objects.get(kind="refused_import").facts["code"] == "key_conflict"


@pytest.mark.parametrize(
    "kind", ["checkpoint", "write", "decision", "request", "receipt"]
)
def test_a_row_of_another_run_is_never_replaced(
    kind: str, tmp_path: Path, people: cast.People
) -> None:
    """A house that is trusted says that a row of ours is one of its own."""
    theirs = lines_of(exported(signed_run(tmp_path, people)))
    run = Run.objects.get()
    forgotten(run)
    signed_run(tmp_path, people)
    name = "write" if kind == "write" else "id"
    model = {
        "checkpoint": Checkpoint,
        "write": PendingWrite,
        "decision": Decision,
        "request": ApprovalRequest,
    }.get(kind)
    model = model or Decision._meta.get_field("receipt").related_model
    ours = str(getattr(model._base_manager.order_by("pk").last(), name))
    mine = next(body["row"][name] for body in theirs if body["kind"] == kind)
    forged = json.loads(json.dumps(theirs).replace(mine, ours))
    before = contents()
    with pytest.raises((KeyConflict, InvalidBundle)):
        loaded(written(forged, KEY))
    assert contents() == before


def test_a_decision_that_nobody_was_needed_for_names_no_write_of_ours(
    tmp_path: Path, people: cast.People
) -> None:
    """No table keeps the id of such a write apart, and who asks by it must not meet
    another house's decision.
    """
    theirs = small_graphs.advanced(
        claim("unasked", needs_approval=lambda state, proposal: False)
    )
    bodies = lines_of(exported(theirs))
    forgotten(theirs)
    signed_run(tmp_path, people)
    ours = PendingWrite.objects.order_by("id").first()
    assert ours is not None
    at = next(n for n, body in enumerate(bodies) if body["kind"] == "decision")
    forged = {**bodies[at], "row": {**bodies[at]["row"], "write": str(ours.write)}}
    before = contents()
    with pytest.raises(KeyConflict):
        loaded(written([*bodies[:at], forged, *bodies[at + 1 :]], KEY))
    assert contents() == before


def _bad(data: bytes) -> dict[str, bytes]:
    """Return what a house that is not careful, or not honest, may send."""
    bodies = lines_of(data)
    stranger = Ed25519PrivateKey.generate()

    def with_row(kind: str, **columns: Any) -> bytes:
        at = next(n for n, body in enumerate(bodies) if body["kind"] == kind)
        changed = {**bodies[at], "row": {**bodies[at]["row"], **columns}}
        return written([*bodies[:at], changed, *bodies[at + 1 :]], KEY)

    lacking = {
        name: value for name, value in bodies[1]["row"].items() if name != "label"
    }
    return {
        "untrusted": written(bodies, stranger),
        "truncated": data[:-100],
        "cut at a line": data[: data.rindex(b'{"hash"')],
        "a flipped bit": data[:900] + bytes([data[900] ^ 1]) + data[901:],
        "a future format": data.replace(b"bundle-1", b"bundle-7"),
        "empty": b"",
        "gzip": b"\x1f\x8b\x08" + bytes(1000),
        "a path in a name": with_row("run", key="../../etc/passwd\x00"),
        "a status of its own": with_row("run", status="blessed"),
        "no number": with_row("run", superstep="1"),
        "a number too large": with_row("run", superstep=2**40),
        "a time without zone": with_row("run", created_at="2026-01-01T00:00:00"),
        "a row of another run": with_row("result", run=OTHER),
        "a column of its own": with_row("run", epoch=7),
        "a column less": written(
            [bodies[0], {**bodies[1], "row": lacking}, *bodies[2:]], KEY
        ),
        "another head": with_row("run", head=OTHER),
        "another input": with_row("run", input="{}"),
        "no payload": with_row("event", payload={"kept": "AAAA"}),
        "erased": written(
            [
                {**bodies[0], "erasures": [{"id": OTHER, "rows_hash": "aa"}]},
                *bodies[1:],
            ],
            KEY,
        ),
        "exported as it is": written(
            [{**bodies[0], "as_is": True, "faults": ["x"]}, *bodies[1:]], KEY
        ),
    }


def test_what_is_bad_is_refused_by_name_and_changes_nothing(
    tmp_path: Path, people: cast.People
) -> None:
    data = foreign(signed_run(tmp_path, people))
    bad = _bad(data)
    before = contents()
    for what, sent in bad.items():
        with pytest.raises(InvalidBundle) as refused:
            loaded(sent)
        assert refused.value.facts["reason"], what
        assert contents() == before, what
    assert AuditLine.objects.filter(kind="refused_import").count() == len(bad)
    assert loaded(data).imported


@pytest.mark.parametrize("kind", ["manifest", "run"])
@pytest.mark.parametrize(
    "key",
    [
        "a/b",
        "a:b",
        "CLM-1:step-4",
        "..//x",
        OTHER,
        OTHER.upper().replace("-", ""),
        "",
        "x" * 201,
    ],
)
def test_a_key_that_no_start_takes_is_refused_by_name(
    kind: str, key: str, tmp_path: Path, people: cast.People
) -> None:
    bodies = lines_of(foreign(signed_run(tmp_path, people)))
    at = 0 if kind == "manifest" else 1
    holder = dict(bodies[at] if kind == "manifest" else bodies[at]["row"]) | {
        "key": key
    }
    changed = holder if kind == "manifest" else {**bodies[at], "row": holder}
    with pytest.raises(InvalidBundle, match="without / and :"):
        loaded(written([*bodies[:at], changed, *bodies[at + 1 :]], KEY))
    assert not Run.objects.exists()


def test_a_run_that_was_started_without_a_key_comes_in(
    tmp_path: Path, people: cast.People
) -> None:
    run = graphs.started(tmp_path)
    assert run.key == str(run.id)
    imported = loaded(foreign(run))
    assert imported.key == f"{run.key}~{run.key[-8:]}"


@pytest.mark.parametrize("good", [1, 2, 3])
def test_a_file_that_is_replaced_while_it_is_read_changes_nothing(
    good: int, tmp_path: Path, people: cast.People
) -> None:
    """The importer looks for the key, then reads three times: the signature, what is
    there, and to write it.
    """
    run = signed_run(tmp_path, people)
    bodies = lines_of(exported(run))
    data = foreign(run)
    altered = [{**bodies[0], "exported_at": "2030-01-01T00:00:00+00:00"}, *bodies[1:]]
    forged = written(altered, Ed25519PrivateKey.generate())
    before = contents()
    with pytest.raises(InvalidBundle):
        bundle.load(ReplacedFile(*[data] * good, forged))
    assert contents() == before


@pytest.mark.parametrize("file", [None, 7, b"bytes", "\x00", "\ud800", {}, []])
def test_what_is_no_file_is_refused(file: Any, people: cast.People) -> None:
    with pytest.raises(InvalidValue):
        bundle.load(file)
    with pytest.raises((InvalidValue, UnknownThing)):
        bundle.export(OTHER, file)
    assert not AuditLine.objects.filter(kind="run_imported").exists()


def test_a_label_that_the_log_does_not_tell_is_found_before_anything_stays(
    tmp_path: Path, people: cast.People
) -> None:
    bodies = lines_of(foreign(signed_run(tmp_path, people)))
    forged = [
        bodies[0],
        {**bodies[1], "row": {**bodies[1]["row"], "label": "paid"}},
        *bodies[2:],
    ]
    with pytest.raises(InvalidBundle, match="does not verify"):
        loaded(written(forged, KEY))
    assert not Run.objects.exists()


def test_an_encrypted_run_comes_in_only_where_its_key_is(
    tmp_path: Path, people: cast.People, configure: Any
) -> None:
    data = foreign(signed_run(tmp_path, people, encrypted=True))
    configure(ENCRYPTION_KEYS={"new": b64encode(bytes(32)).decode()})
    with pytest.raises(WrongKey, match="'old'"):
        loaded(data)
    assert not Run.objects.exists()


def test_no_verb_but_fork_takes_an_imported_run(
    tmp_path: Path, people: cast.People
) -> None:
    run = graphs.started(tmp_path)
    assert run.status == "paused"
    imported = loaded(foreign(run))
    assert imported.status == "paused"
    assert verify_run(imported.id) == []
    at = Checkpoint.objects.filter(run=imported.id).first().id
    write = PendingWrite.objects.filter(run=imported.id).first()
    from approvals import reviews

    signed = [{"write": str(write.write), "hash": write.hash, "verdict": "approve"}]
    verbs = [
        lambda: runs.cancel(imported.id, reason="x"),
        lambda: runs.rewind(imported.id, at, reason="x"),
        lambda: runs.replay(at),
        lambda: runs.resume(imported.id),
        lambda: runs.resume(imported.id, patch={"scratch": {"letter": "x"}}),
        lambda: runs.settle(imported.id, "pay:1:0", happened=False, reason="x"),
        lambda: reviews.sign(imported.id, signed, by=people.reviewer),
    ]
    before = contents()
    for number, verb in enumerate(verbs):
        with pytest.raises(WrongStatus, match="imported"):
            verb()
        assert contents() == before, number
    assert runs.advance(imported.id).status == "paused"


@pytest.mark.parametrize("status", ["queued", "running", "waiting"])
def test_a_run_that_was_going_on_rests_here_and_no_worker_takes_it(
    status: str, tmp_path: Path
) -> None:
    run = graphs.started(tmp_path)
    bodies = lines_of(foreign(run))
    bodies[1]["row"]["status"] = status
    imported = loaded(written(bodies, KEY))
    assert imported.status == "paused"
    assert runs.advance(imported.id).status == "paused"


def test_the_mark_of_an_import_cannot_be_taken_away(tmp_path: Path) -> None:
    imported = loaded(foreign(graphs.started(tmp_path)))
    Run.objects.filter(id=imported.id).update(imported=False)
    assert "not as it was sealed" in verify_run(imported.id)[0].reason


def test_where_an_import_comes_from_cannot_be_changed_or_taken_away(
    tmp_path: Path,
) -> None:
    imported = loaded(foreign(graphs.started(tmp_path)))
    BundleImport.objects.update(signer_name="south")
    assert "not as it was sealed" in verify_run(imported.id)[0].reason
    BundleImport.objects.all().delete()
    assert "is gone" in verify_run(imported.id)[0].reason


def test_a_key_of_another_house_never_stands_in_the_way_of_a_start(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    key = run.key
    loaded(foreign(run))
    assert not runs.start(
        "watched", {"folder": str(tmp_path)}, key=f"CLM {key[:8]}"
    ).imported
    assert not Run.objects.filter(key=key).exists()


def test_a_run_that_says_it_comes_from_one_of_ours_must_name_a_checkpoint_of_it(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    at = Checkpoint.objects.filter(run=run.id, kept=True).order_by("seq")[0]
    fork = runs.fork(at.id, by=people.starter, start=False)
    bodies = lines_of(exported(fork))
    forgotten(fork)
    theirs = json.loads(json.dumps(bodies).replace(str(at.id), OTHER))
    with pytest.raises(KeyConflict, match="knows nothing of that"):
        loaded(written(hashed_anew(theirs), KEY))
    assert loaded(written(bodies, KEY)).imported


def test_what_breaks_off_while_it_is_written_leaves_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = foreign(run)
    before = contents()

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr("checkpoints.bundle.importer.verify_run", broken)
    with pytest.raises(OSError, match="full"):
        loaded(data)
    assert contents() == before
    assert not connection.in_atomic_block
    with transaction.atomic():
        assert not Run.objects.filter(id=run.id).exists()


def commented(run: Run, by: User) -> RequestComment:
    request = ApprovalRequest.objects.filter(run=run)[0]
    return reviews.comment(request.id, "Marta has called.", by=by)


def test_comments_come_in_with_their_run_and_no_others(
    run: Run, people: cast.People
) -> None:
    without = json.loads(exported(run).splitlines()[-2])["body"]["counts"]
    assert "comment" not in without
    row = commented(run, people.reviewer)
    data = foreign(run)
    assert "comment" in {line["kind"] for line in lines_of(data)}
    imported = loaded(data)
    (there,) = RequestComment.objects.select_related("run")
    assert (there.id, there.by_name, there.by) == (row.id, "rita", None)
    assert read_value(there, "text") == "Marta has called."
    assert verify_run(imported.id) == []
    with pytest.raises(WrongStatus, match="imported"):
        commented(imported, people.steward)


def test_a_comment_on_a_request_that_is_not_in_the_bundle_is_refused(
    tmp_path: Path, people: cast.People
) -> None:
    run = signed_run(tmp_path, people)
    commented(run, people.reviewer)
    lines = lines_of(foreign(run))
    for line in lines:
        if line["kind"] == "comment":
            line["row"]["request"] = OTHER
    with pytest.raises(InvalidBundle, match="request of this comment is missing"):
        loaded(written(lines, KEY))
