"""Whatever is done to a bundle, the verifier names the line; one that was written from
the docs alone agrees.
"""

import hashlib
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from checkpoints import bundle
from checkpoints.bundle import verifier
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support import call_graphs, cast, run_actions, small_graphs
from tests.support.bundle_reader import first_bad_line
from tests.support.bundles import (
    ReplacedFile,
    exported,
    lines_of,
    signed_run,
    with_last_line,
    within,
    written,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
MODULE = Path(verifier.__file__)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def one_key(configure: Any) -> None:
    configure(BUNDLE_KEY=bytes(range(32)), ENCRYPTION_KEYS={"e": bytes(32)})


@pytest.fixture
def small() -> bytes:
    """A run of one step."""
    graph = small_graphs.graph("small")
    graph.node("only")(lambda state, ctx: {"notes": ["Grüße"]})
    graph.edge(START, "only")
    graph.edge("only", END)
    out = io.BytesIO()
    bundle.export(small_graphs.advanced(graph).id, out)
    return out.getvalue()


@pytest.fixture
def large(tmp_path: Path, people: cast.People) -> bytes:
    out = io.BytesIO()
    bundle.export(signed_run(tmp_path, people).id, out)
    return out.getvalue()


def _bad_line(data: bytes) -> int:
    """The first bad line as both verifiers name it; 0 where both are content."""
    verdict = bundle.verify(io.BytesIO(data), PUBLIC)
    assert verdict.ok == (verdict.bad_line == 0), verdict
    assert first_bad_line(data, PUBLIC) == verdict.bad_line, verdict
    return verdict.bad_line


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def test_each_flipped_byte_of_a_small_bundle_is_named_by_its_line(small: bytes) -> None:
    assert _bad_line(small) == 0
    chance = random.Random(1)
    line = 1
    for at, byte in enumerate(small):
        assert _bad_line(_flipped(small, at, chance.randrange(8))) == line, at
        line += byte == 10


def test_random_bits_of_a_larger_bundle_are_named_by_their_line(large: bytes) -> None:
    """In full (COUNTERSIGN_BUNDLE_BITS=10000) ten thousand."""
    assert _bad_line(large) == 0
    trials = int(os.environ.get("COUNTERSIGN_BUNDLE_BITS", "200"))
    chance = random.Random(2)
    for _ in range(trials):
        at = chance.randrange(len(large))
        assert (
            _bad_line(_flipped(large, at, chance.randrange(8)))
            == large.count(b"\n", 0, at) + 1
        ), at
    print(f"{trials} random bits of {len(large):,} bytes, each named")


def test_a_cut_bundle_is_truncated_wherever_it_was_cut(small: bytes) -> None:
    for at in range(0, len(small), 37):
        verdict = bundle.verify(io.BytesIO(small[:at]), PUBLIC)
        assert "truncated" in verdict.reason, (at, verdict)
        assert _bad_line(small[:at]) == small.count(b"\n", 0, at) + 1, at


def test_lines_cut_out_doubled_or_in_another_order_are_named(large: bytes) -> None:
    lines = large.splitlines(keepends=True)
    for at in range(len(lines)):
        doubled = [*lines[: at + 1], *lines[at:]]
        assert _bad_line(b"".join(doubled)) == at + 2
        without = [*lines[:at], *lines[at + 1 :]]
        assert _bad_line(b"".join(without)) == at + 1
        if at + 1 < len(lines):
            turned = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
            assert _bad_line(b"".join(turned)) == at + 1
    assert _bad_line(large + lines[0]) == len(lines) + 1


def _falsified(large: bytes) -> Iterator[tuple[str, int, Any]]:
    """Yield what a house could tell that is not so: (what, line, change of that line)."""
    bodies = lines_of(large)

    def at(kind: str, column: str, value: Any, number: int = 0) -> tuple[str, int, Any]:
        position = [n for n, body in enumerate(bodies) if body["kind"] == kind][number]
        return (
            f"{kind}.{column}",
            position,
            {**bodies[position], "row": {**bodies[position]["row"], column: value}},
        )

    yield at("run", "input", "{}")
    yield at("event", "actor", "mallory", 2)
    yield at("event", "payload", "{}", 1)
    yield at("event", "seq", 9, 3)
    yield at("checkpoint", "change", "[]", 1)
    yield at("checkpoint", "snapshot", "{}", 0)
    yield at("checkpoint", "superstep", 7, 1)
    yield at("checkpoint", "committed", False, 1)
    yield at("checkpoint", "parent", "01890a5d-ac96-774b-bcce-b302099a8057", 1)
    yield at("write", "value", '{"amount":"9999"}')
    yield at("write", "shown", "{}")
    yield at("write", "bound_hash", "0" * 64)
    yield at("decision", "seen_hash", "0" * 64)
    yield at("decision", "final_value", '{"amount":"9999"}')
    yield at("decision", "write", "01890a5d-ac96-774b-bcce-b302099a8057")
    yield at("decision", "event_seq", 1)
    yield at("decision", "request", "01890a5d-ac96-774b-bcce-b302099a8057")
    yield at("result", "run", "01890a5d-ac96-774b-bcce-b302099a8057")


def test_what_does_not_fit_is_named_even_where_the_house_itself_signed_it(
    large: bytes,
) -> None:
    bodies = lines_of(large)
    assert _bad_line(written(bodies, KEY)) == 0
    for what, at, change in _falsified(large):
        assert (
            _bad_line(written([*bodies[:at], change, *bodies[at + 1 :]], KEY)) == at + 1
        ), what


@pytest.mark.parametrize("snapshot", [[], {}, 0, False, None])
def test_a_snapshot_that_is_neither_a_text_nor_empty_is_refused(
    large: bytes, snapshot: Any
) -> None:
    bodies = lines_of(large)
    at = max(n for n, body in enumerate(bodies) if body["kind"] == "checkpoint")
    assert bodies[at]["row"]["snapshot"] == ""
    bodies[at]["row"]["snapshot"] = snapshot
    verdict = bundle.verify(io.BytesIO(written(bodies, KEY)), PUBLIC)
    assert verdict.ok is False, verdict
    assert verdict.bad_line == at + 1, verdict


@pytest.mark.parametrize("verdict", ["edit", "approve"])
def test_a_decision_whose_final_value_is_not_the_one_that_was_signed_is_named(
    large: bytes, verdict: str
) -> None:
    bodies = lines_of(large)
    [at] = [
        n
        for n, body in enumerate(bodies)
        if body["kind"] == "decision" and body["row"]["verdict"] == verdict
    ]
    for value in ('{"amount":"9999"}', '"Dear Mallory"', ""):
        altered = {**bodies[at], "row": {**bodies[at]["row"], "final_value": value}}
        assert (
            _bad_line(written([*bodies[:at], altered, *bodies[at + 1 :]], KEY))
            == at + 1
        ), value


def test_an_approval_of_another_value_than_was_seen_is_named(large: bytes) -> None:
    """The edit, told as an approval: what was seen has another value than what was
    decided.
    """
    bodies = lines_of(large)
    [at] = [
        n
        for n, body in enumerate(bodies)
        if body["kind"] == "decision" and body["row"]["verdict"] == "edit"
    ]
    altered = {**bodies[at], "row": {**bodies[at]["row"], "verdict": "approve"}}
    assert _bad_line(written([*bodies[:at], altered, *bodies[at + 1 :]], KEY)) == at + 1


def test_a_rejection_that_has_a_final_value_is_named(large: bytes) -> None:
    bodies = lines_of(large)
    [at] = [
        n
        for n, body in enumerate(bodies)
        if body["kind"] == "decision" and body["row"]["verdict"] == "edit"
    ]
    altered = {**bodies[at], "row": {**bodies[at]["row"], "verdict": "reject"}}
    assert _bad_line(written([*bodies[:at], altered, *bodies[at + 1 :]], KEY)) == at + 1


def test_a_row_that_the_house_left_out_is_missed(large: bytes) -> None:
    bodies = lines_of(large)
    for at, body in enumerate(bodies[:-1]):
        if body["kind"] != "seals":
            assert _bad_line(written([*bodies[:at], *bodies[at + 1 :]], KEY)) != 0, (
                at,
                body["kind"],
            )


@pytest.mark.parametrize(
    "stretch", [[1, 0, "", ""], [3, 2, "", ""], [1, 1.0, "", ""], [1.5, 2, "", ""]]
)
@pytest.mark.parametrize("part", ["events", "checkpoints"])
def test_a_removed_stretch_that_ends_before_it_begins_is_refused(
    small: bytes, part: str, stretch: list[Any]
) -> None:
    bodies = lines_of(small)
    removed = {**bodies[0]["removed"], part: [stretch]}
    with within(5):
        assert (
            _bad_line(written([{**bodies[0], "removed": removed}, *bodies[1:]], KEY))
            == 1
        )


def _other_ways_to_write(body: bytes) -> Iterator[bytes]:
    """Last lines that say the same as this one, to who reads them as JSON."""
    document = json.loads(body)
    for name in ("key", "last", "signature"):
        yield body.replace(document[name].encode(), document[name].upper().encode())
    spaced = " ".join(document["signature"][at : at + 2] for at in range(0, 128, 2))
    yield body.replace(document["signature"].encode(), spaced.encode())
    lines = b'"lines":%d' % document["lines"]
    for written_otherwise in (
        lines + b".0",
        lines + b" ",
        b'"lines": %d' % document["lines"],
        b'"lines":%de0' % document["lines"],
    ):
        yield body.replace(lines, written_otherwise)
    yield body.replace(b'"kind"', b'"k\\u0069nd"')
    yield body[:-1] + b',"x":{}}'
    yield json.dumps(
        {key: document[key] for key in reversed(document)}, separators=(",", ":")
    ).encode()


def test_the_line_of_the_signature_is_written_in_one_way_only(small: bytes) -> None:
    body = small.splitlines()[-1][len(verifier.HEAD) + 64 + len(verifier.MIDDLE) : -1]
    assert _bad_line(with_last_line(small, body)) == 0
    lines = small.count(b"\n")
    for other in _other_ways_to_write(body):
        assert other != body
        assert _bad_line(with_last_line(small, other)) in (lines, lines + 1), other


def test_a_text_that_nobody_signed_reaches_no_terminal(
    small: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "run.jsonl"
    for text in (b"\\ud800", b"\\u001b[2K\\rok", "\u202e".encode()):
        body = (
            b'{"kind":"signature","key":"'
            + text
            + b'","x":{"key":"'
            + PUBLIC.hex().encode()
            + b'"}}'
        )
        file.write_bytes(with_last_line(small, body))
        command = [sys.executable, str(MODULE), str(file), "--key", PUBLIC.hex()]
        done = subprocess.run(
            command,
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert done.returncode == 1, done
        assert done.stderr == b"", done
        assert done.stdout.strip().decode("ascii").isprintable(), done.stdout


def test_what_a_house_says_of_its_own_run_is_told_without_what_a_terminal_obeys(
    small: bytes,
) -> None:
    bodies = lines_of(small)
    for text in ("\ud800", "\x1b[2K\rok"):
        altered = {**bodies[0], "as_is": True, "faults": [f"fault {text}"]}
        head = json.dumps(altered, separators=(",", ":")).encode()
        verdict = bundle.verify(
            io.BytesIO(_with_body([altered, *bodies[1:]], 0, head)), PUBLIC
        )
        assert verdict.ok is False, verdict
        assert verdict.bad_line == 1, verdict
        assert "fault " in verdict.reason, verdict
        assert verdict.reason.isascii()
        assert verdict.reason.isprintable()


def test_a_run_exported_as_it_is_passes_by_no_fault_without_a_text(
    small: bytes,
) -> None:
    manifest, *rest = lines_of(small)
    as_is = {**manifest, "as_is": True, "faults": [""]}
    head = json.dumps(as_is, separators=(",", ":")).encode()
    verdict = bundle.verify(io.BytesIO(_with_body([as_is, *rest], 0, head)), PUBLIC)
    assert not verdict.ok
    assert "a fault without a text" in verdict.reason


SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    *(f"{first}{'ff' * 30}7f" for first in ("ec", "ed", "ee")),
]
"""Points whose eightfold is nothing, also those written beyond the field; the top bit
makes seven more.
"""


def test_a_key_with_which_anybody_signs_verifies_nothing(small: bytes) -> None:
    base = bytes.fromhex("58" + "66" * 31)
    forged = base + (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(SMALL_ORDER[1])).verify(
        forged, b"any text"
    )
    for small_order in SMALL_ORDER:
        for top in (0, 0x80):
            key = bytes.fromhex(small_order)[:31] + bytes(
                [bytes.fromhex(small_order)[31] | top]
            )
            assert bundle.verify(io.BytesIO(small), key) == (
                False,
                0,
                "anybody can sign with this public key",
            ), small_order
    lines = small.splitlines(keepends=True)
    key = SMALL_ORDER[1]
    last = json.loads(lines[-2])["hash"]
    body = {
        "kind": "signature",
        "lines": len(lines) - 1,
        "last": last,
        "key": key,
        "signature": forged.hex(),
    }
    sent = with_last_line(small, json.dumps(body, separators=(",", ":")).encode())
    assert not bundle.verify(io.BytesIO(sent), bytes.fromhex(key)).ok


RECORD = "01890a5d-ac96-774b-bcce-b302099a8057"
TOMBSTONE = json.dumps({"erased": True, "record": RECORD}, separators=(",", ":"))
ERASED = {
    "run": ["input"],
    "checkpoint": ["change", "snapshot"],
    "write": ["value", "base", "shown"],
    "decision": ["old_value", "final_value", "reason"],
    "result": ["output"],
}


def _erased(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a run of which all values were erased afterwards."""
    document = json.loads(json.dumps(bodies))
    for body in document:
        names = [name for name in ERASED.get(body["kind"], ()) if body["row"][name]]
        names += (
            ["payload"] if body["kind"] == "event" and body["row"]["seq"] == 1 else []
        )
        if names:
            body["row"] |= dict.fromkeys(names, TOMBSTONE)
            tombstone_hashes = dict.fromkeys(
                names, hashlib.sha256(TOMBSTONE.encode()).hexdigest()
            )
            body["erased"] = {"record": RECORD, "columns": tombstone_hashes}
        if "base" in names:
            del body["binding"]
    events = [body for body in document if body["kind"] == "event"]
    last = events[-1]["row"]
    run = document[1]["row"]
    row = {
        **last,
        "seq": last["seq"] + 1,
        "type": "erased",
        "payload": f'{{"record":"{RECORD}","rows_hash":"aa"}}',
    }
    parts = [
        row[name] for name in ("run", "seq", "type", "at", "node", "task", "actor")
    ]
    row["hash"] = verifier.framed_hash(last["hash"], *parts, row["payload"].encode())
    document.insert(document.index(events[-1]) + 1, {"kind": "event", "row": row})
    run["event_seq"] = row["seq"]
    run["event_hash"] = row["hash"]
    next(body for body in document if body["kind"] == "counts")["counts"]["event"] += 1
    document[0]["erasures"] = [{"id": RECORD, "rows_hash": "aa"}]
    return document


def test_what_was_erased_verifies_exactly_where_a_record_covers_it(
    large: bytes,
) -> None:
    bodies = _erased(lines_of(large))
    assert _bad_line(written(bodies, KEY)) == 0
    noted = [n for n, body in enumerate(bodies) if "erased" in body]
    assert len(noted) > 8
    for at in noted:
        body = bodies[at]
        note = bodies[at]["erased"]
        other = {**note, "record": "01890a5d-ac96-774b-bcce-b302099a8058"}
        name = next(iter(note["columns"]))
        restored = {**body, "row": {**body["row"], name: '"Ada"'}}
        for change in ({**body, "erased": other}, restored):
            assert (
                _bad_line(written([*bodies[:at], change, *bodies[at + 1 :]], KEY))
                == at + 1
            ), change
        bare = {key: value for key, value in body.items() if key != "erased"}
        bad_line = _bad_line(written([*bodies[:at], bare, *bodies[at + 1 :]], KEY))
        hashed = body["kind"] in ("run", "event", "checkpoint", "write")
        assert bad_line == (at + 1 if hashed else 0), body["kind"]


def test_an_erasure_is_told_by_the_manifest_and_by_the_log(large: bytes) -> None:
    bodies = _erased(lines_of(large))
    line = next(
        n
        for n, body in enumerate(bodies)
        if body.get("row", {}).get("type") == "erased"
    )
    for erasures, bad in (
        ([], 2),
        ([{"id": RECORD, "rows_hash": "bb"}], line + 1),
        (
            [*bodies[0]["erasures"], {"id": "another", "rows_hash": "aa"}],
            len(bodies) - 1,
        ),
    ):
        assert (
            _bad_line(written([{**bodies[0], "erasures": erasures}, *bodies[1:]], KEY))
            == bad
        )


@pytest.mark.parametrize("kind", ["event", "checkpoint", "decision"])
def test_a_house_that_leaves_out_the_last_row_and_counts_it_not_is_found(
    large: bytes, kind: str
) -> None:
    bodies = lines_of(large)
    last = max(n for n, body in enumerate(bodies) if body["kind"] == kind)
    counted = next(body for body in bodies if body["kind"] == "counts")["counts"]
    counted[kind] -= 1
    assert (
        _bad_line(written([*bodies[:last], *bodies[last + 1 :]], KEY))
        == len(bodies) - 2
    )


def test_another_key_is_refused_at_the_signature(small: bytes) -> None:
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    lines = small.count(b"\n")
    verdict = bundle.verify(io.BytesIO(small), other)
    assert verdict.ok is False
    assert verdict.bad_line == lines
    assert "another key" in verdict.reason
    claimed = small.replace(PUBLIC.hex().encode(), other.hex().encode())
    assert bundle.verify(io.BytesIO(claimed), other).bad_line == lines


def test_a_file_that_is_replaced_behind_the_signature_is_not_what_was_signed(
    large: bytes,
) -> None:
    bodies = lines_of(large)
    other = Ed25519PrivateKey.generate()
    altered = [{**bodies[0], "exported_at": "2030-01-01T00:00:00+00:00"}, *bodies[1:]]
    unsigned = written(altered, other).replace(
        other.public_key().public_bytes_raw().hex().encode(), b"0" * 64
    )
    for later in (
        written(altered, other),
        unsigned,
        large + large.splitlines(keepends=True)[-1],
    ):
        verdict = bundle.verify(ReplacedFile(large, later), PUBLIC)
        assert verdict.ok is False, verdict
        assert verdict.bad_line > 0, verdict
    assert bundle.verify(ReplacedFile(large, large), PUBLIC).ok


@pytest.mark.parametrize("key", [b"", b"x" * 31, "text", None, 7, PUBLIC.hex()])
def test_what_is_no_key_is_refused_and_nothing_is_raised(
    small: bytes, key: Any
) -> None:
    assert bundle.verify(io.BytesIO(small), key) == (
        False,
        0,
        "the public key must be 32 bytes",
    )


@pytest.mark.parametrize(
    "file", [None, 7, "/nowhere/at/all", b"bytes", io.StringIO("text")]
)
def test_what_is_no_file_is_refused_and_nothing_is_raised(file: Any) -> None:
    assert not bundle.verify(file, PUBLIC).ok


def test_a_format_of_the_future_is_refused_by_its_name(small: bytes) -> None:
    verdict = bundle.verify(
        io.BytesIO(small.replace(b"countersign-bundle-1", b"countersign-bundle-9")),
        PUBLIC,
    )
    assert verdict.bad_line == 1
    assert "countersign-bundle-9" in verdict.reason


def test_a_key_that_is_said_twice_is_refused(small: bytes) -> None:
    bodies = lines_of(small)
    data = written(bodies, KEY)
    twice = (
        json.dumps(bodies[1], separators=(",", ":"), ensure_ascii=False)[:-1]
        + ',"kind":"run"}'
    )
    forged = _with_body(bodies, 1, twice.encode())
    assert bundle.verify(io.BytesIO(data), PUBLIC).ok
    verdict = bundle.verify(io.BytesIO(forged), PUBLIC)
    assert verdict.bad_line == 2
    assert "more than once" in verdict.reason


def _with_body(bodies: list[dict[str, Any]], at: int, body: bytes) -> bytes:
    """A bundle with the bytes of one body as given, signed as if it were so."""
    lines = []
    last = verifier.BEGIN
    for number, thread in enumerate(bodies[:-1]):
        text = (
            body
            if number == at
            else json.dumps(thread, separators=(",", ":"), ensure_ascii=False).encode()
        )
        last = hashlib.sha256(last.encode() + text).hexdigest()
        lines.append(
            verifier.HEAD + last.encode() + verifier.MIDDLE + text + verifier.TAIL
        )
    signature = KEY.sign(verifier.signed_text(PUBLIC.hex(), len(lines), last)).hex()
    statement = {
        "kind": "signature",
        "lines": len(lines),
        "last": last,
        "key": PUBLIC.hex(),
        "signature": signature,
    }
    text = json.dumps(statement, separators=(",", ":")).encode()
    last = hashlib.sha256(last.encode() + text).hexdigest()
    return b"".join(
        [*lines, verifier.HEAD + last.encode() + verifier.MIDDLE + text + verifier.TAIL]
    )


def test_bombs_are_refused_in_flat_memory(
    small: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = lines_of(small)
    deep = b'{"kind":"event","row":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert (
        "too deeply"
        in bundle.verify(io.BytesIO(_with_body(bodies, 2, deep)), PUBLIC).reason
    )
    monkeypatch.setattr(verifier, "LONGEST_LINE", 300)
    assert "too long" in bundle.verify(io.BytesIO(small), PUBLIC).reason
    assert "too long" in bundle.verify(io.BytesIO(b"x" * 10_000), PUBLIC).reason
    assert not bundle.verify(io.BytesIO(b"\x1f\x8b" + bytes(100)), PUBLIC).ok


def test_the_verifier_runs_alone_without_django(small: bytes, tmp_path: Path) -> None:
    program = tmp_path / "verify.py"
    file = tmp_path / "run.jsonl"
    program.write_bytes(MODULE.read_bytes())
    assert program.read_text().count("\n") <= 800
    for data, said in [(small, "ok\n"), (small[:-50], "truncated")]:
        file.write_bytes(data)
        command = [
            sys.executable,
            "-X",
            "importtime",
            str(program),
            str(file),
            "--key",
            PUBLIC.hex(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert said in done.stdout, done
        assert done.returncode == (0 if said == "ok\n" else 1), done
        assert "django" not in done.stderr
        assert "checkpoints" not in done.stderr
    assert subprocess.run([*command[:-1], "short"], capture_output=True).returncode != 0


def test_an_encrypted_run_verifies_without_any_key_but_the_public_one(
    tmp_path: Path, people: cast.People
) -> None:
    out = io.BytesIO()
    bundle.export(signed_run(tmp_path, people, encrypted=True).id, out)
    data = out.getvalue()
    assert _bad_line(data) == 0
    chance = random.Random(3)
    for _ in range(50):
        at = chance.randrange(len(data))
        assert _bad_line(_flipped(data, at, 3)) == data.count(b"\n", 0, at) + 1


def test_a_skip_verifies_only_where_its_gate_lets_people_skip(
    people: cast.People,
) -> None:
    ada = run_actions.reviewer(people.reviewer)
    flow = call_graphs.paying(gate=call_graphs.call_gate(skip=True))
    with call_graphs.calls():
        run = small_graphs.advanced(flow)
        run_actions.sign(run, ada, ["skip"])
        run = runs.advance(run.id)
    bodies = lines_of(exported(run))
    data = written(bodies, KEY)
    assert bundle.verify(io.BytesIO(data), PUBLIC) == (True, 0, "")
    assert first_bad_line(data, PUBLIC) == 0

    # Its house says that people skipped what its gate lets nobody skip.
    with call_graphs.calls():
        run = small_graphs.advanced(call_graphs.paying("unskippable"))
        run_actions.sign(run, ada, ["reject"])
        run = runs.advance(run.id)
    bodies = lines_of(exported(run))
    [decision] = [body["row"] for body in bodies if body["kind"] == "decision"]
    decision["verdict"] = "skip"
    data = written(bodies, KEY)
    verdict = bundle.verify(io.BytesIO(data), PUBLIC)
    assert "its gate lets nobody skip" in verdict.reason
    assert first_bad_line(data, PUBLIC) == verdict.bad_line
