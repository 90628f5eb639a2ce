"""The rules of a payload backend. Each is a function of one backend; names in it are
used once and never again.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

from checkpoints.conformance.rule import must, refusing, run
from checkpoints.core.ids import uuid7
from checkpoints.payloads.base import PayloadBackend
from orchestrator.engine.errors import InvalidValue, PayloadLost, PayloadTaken

THREADS = 8
# Contents that a backend of texts, or one that cuts and joins parts, would spoil.
BYTES = (b"", b"\x00", bytes(range(256)), b"\xff" * 4096, bytes(1024 * 1024))
# Names that would leave a backend's folder, or that not every backend can store.
OUTSIDE = (
    "../up",
    "/etc/passwd",
    "a/../../b",
    "a//b",
    "",
    "a/",
    "a\\b",
    "a\x00b",
    "a.b",
    "é",
)


def what_is_put_is_got(backend: PayloadBackend) -> None:
    for data in BYTES:
        name = _name()
        record = backend.put(name, data)
        must(isinstance(record, bytes), f"put gives {type(record).__name__}, not bytes")
        # Read twice, because a checkpoint is loaded more than once.
        for _ in range(2):
            got = backend.get(name, record)
            shown = (
                f"{len(got)} others" if isinstance(got, bytes) else type(got).__name__
            )
            must(
                type(got) is bytes and got == data,
                f"{len(data)} bytes come back as {shown}",
            )


def a_put_that_is_repeated_is_no_error(backend: PayloadBackend) -> None:
    name = _name()
    first = backend.put(name, b"same")
    second = backend.put(name, b"same")
    must(backend.get(name, first) == b"same", "the first put's bytes are gone")
    must(
        backend.get(name, second) == b"same",
        "what the repeated put gave does not find the bytes",
    )


def a_name_is_never_used_for_other_bytes(backend: PayloadBackend) -> None:
    name = _name()
    record = backend.put(name, b"first")
    # A backend of the row stores nothing, so it has nothing to refuse.
    if not backend.in_row:
        with refusing(PayloadTaken, words="a second put with other bytes"):
            backend.put(name, b"other")
    else:
        backend.put(name, b"other")
    must(
        backend.get(name, record) == b"first",
        "a second put changed what the first had kept",
    )


def names_do_not_touch_each_other(backend: PayloadBackend) -> None:
    run_id = str(uuid7())
    # Names that begin alike, and one with a wildcard of LIKE patterns.
    names = [
        run_id,
        f"{run_id}/a",
        f"{run_id}/a/b",
        f"{run_id}/ab",
        f"{run_id}/a_",
        f"{run_id}/a-b",
        f"{run_id}/A~b",
    ]
    records = {name: backend.put(name, name.encode()) for name in names}
    backend.delete(f"{run_id}/a", records[f"{run_id}/a"])
    backend.delete(f"{run_id}/a_", records[f"{run_id}/a_"])
    for name in names:
        if name not in (f"{run_id}/a", f"{run_id}/a_"):
            must(
                backend.get(name, records[name]) == name.encode(),
                "deleting one name takes another's bytes",
            )


def what_is_deleted_is_gone(backend: PayloadBackend) -> None:
    name = _name()
    record = backend.put(name, b"gone soon")
    backend.delete(name, record)
    if not backend.in_row:
        with refusing(PayloadLost, words="get after delete"):
            backend.get(name, record)


def deleting_what_is_not_there_is_no_error(backend: PayloadBackend) -> None:
    backend.delete(_name(), b"")
    name = _name()
    record = backend.put(name, b"twice")
    backend.delete(name, record)
    backend.delete(name, record)
    backend.delete(name, b"")


def bytes_without_a_row_can_be_deleted_by_name(backend: PayloadBackend) -> None:
    name = _name()
    record = backend.put(name, b"nobody's")
    backend.delete(name, b"")
    if not backend.in_row:
        with refusing(PayloadLost, words="get after a delete by name"):
            backend.get(name, record)


def what_was_never_put_is_lost(backend: PayloadBackend) -> None:
    if backend.in_row:
        return
    # With a record that is good, so that the name alone decides.
    record = backend.put(_name(), b"another's")
    with refusing(PayloadLost, words="get of a name that was never put"):
        backend.get(_name(), record)


def names_cannot_leave_the_place(backend: PayloadBackend) -> None:
    if backend.in_row:
        return
    for name in OUTSIDE:
        with refusing(InvalidValue, words=f"put under {name!r}"):
            backend.put(name, b"outside")


def the_sweep_sees_what_is_old_and_nothing_else(backend: PayloadBackend) -> None:
    name = _name()
    deleted = _name()
    backend.put(name, b"old one day")
    backend.delete(deleted, backend.put(deleted, b"deleted"))
    now = datetime.now(UTC)
    later = set(backend.names(before=now + timedelta(hours=1)))
    must(
        (name in later) is not backend.in_row,
        "names(before) misses a name, or lists what is in a row",
    )
    must(deleted not in later, "names(before) lists what was deleted")
    must(
        name not in set(backend.names(before=now - timedelta(hours=1))),
        "names(before) lists what is younger",
    )
    # A folder whose name begins with that of the other one.
    other = f"{name.partition('/')[0]}x/{_name().rpartition('/')[2]}"
    backend.put(other, b"of another folder")
    folder = name.partition("/")[0]
    in_folder = set(backend.names(before=now + timedelta(hours=1), folder=folder))
    must((name in in_folder) is not backend.in_row, "names(folder) misses a name")
    must(other not in in_folder, "names(folder) lists what is in another folder")


def threads_do_not_disturb_each_other(backend: PayloadBackend) -> None:
    names = [_name() for _ in range(4 * THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        records = list(
            pool.map(lambda name: backend.put(name, name.encode() * 50), names)
        )
        got = list(pool.map(backend.get, names, records))
    must(
        got == [name.encode() * 50 for name in names],
        "bytes that threads put at once are mixed up",
    )


def of_two_that_want_one_name_one_has_it(backend: PayloadBackend) -> None:
    if backend.in_row:
        return
    name = _name()
    # Puts that came one after the other would prove nothing.
    together = Barrier(THREADS)

    def put(n: int) -> bytes:
        together.wait()
        return backend.put(name, bytes([n]) * 1000)

    with ThreadPoolExecutor(THREADS) as pool:
        puts = [pool.submit(put, n) for n in range(THREADS)]
    won = []
    wrong = []
    for n, end in enumerate(puts):
        error = end.exception()
        if error is None:
            won.append((n, end.result()))
        elif not isinstance(error, PayloadTaken):
            wrong.append(error)
    must(not wrong, f"a put that came second raises {wrong[:1]!r}")
    must(len(won) == 1, f"{len(won)} puts of different bytes succeeded under one name")
    [(winner, record)] = won
    must(
        backend.get(name, record) == bytes([winner]) * 1000,
        "the name holds another's bytes than the winner's",
    )


PAYLOAD_RULES: tuple[Callable[[PayloadBackend], None], ...] = (
    what_is_put_is_got,
    a_put_that_is_repeated_is_no_error,
    a_name_is_never_used_for_other_bytes,
    names_do_not_touch_each_other,
    what_is_deleted_is_gone,
    deleting_what_is_not_there_is_no_error,
    bytes_without_a_row_can_be_deleted_by_name,
    what_was_never_put_is_lost,
    names_cannot_leave_the_place,
    the_sweep_sees_what_is_old_and_nothing_else,
    threads_do_not_disturb_each_other,
    of_two_that_want_one_name_one_has_it,
)


def check_payloads(make: Callable[[], PayloadBackend], *, lasting: bool = True) -> None:
    """Check that a backend keeps its contract. `make` returns a backend, each time over
    the same place.

    Raises `Broken`, naming the rule. `lasting=False` is for a backend whose payloads
    end with its process.
    """
    run(PAYLOAD_RULES, make)
    if lasting:
        run((_lasts(make),), make)


def _lasts(make: Callable[[], PayloadBackend]) -> Callable[[PayloadBackend], None]:
    def what_is_put_outlives_the_object_that_put_it(backend: PayloadBackend) -> None:
        name = _name()
        record = backend.put(name, b"still there")
        must(
            make().get(name, record) == b"still there",
            "a new backend over the same place does not have the bytes",
        )
        if not backend.in_row:
            with refusing(
                PayloadTaken,
                words="a put of other bytes by a new backend over the same place",
            ):
                make().put(name, b"other")

    return what_is_put_outlives_the_object_that_put_it


def _name() -> str:
    """Return a name as the ledger names payloads: run, checkpoint, column."""
    return f"{uuid7()}/{uuid7()}/change"
