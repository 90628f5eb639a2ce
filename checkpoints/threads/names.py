"""The runs of threads by their names: which run is a thread, under which key, and the
names under which its log finds a checkpoint.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from urllib.parse import quote, unquote

from checkpoints.core.run_key import LONGEST_KEY
from checkpoints.models import RemovedKey, Run
from orchestrator.engine.errors import InvalidValue

FINGERPRINT = sha256(b"thread of another engine").hexdigest()
"""The fingerprint of all threads; none of our graphs has it."""
LONGEST_ID = 240
"""The most characters of a checkpoint's id, which a line of the log holds."""
_LONGEST_PLACE = 200
_ROOM = 12
"""The characters of a key that are reserved for the number at its end."""
_KEYS_AT_ONCE = 20
_PREFIX = "thread-"
_BEFORE_NUMBER = "~"
SAVED = "thread_saved"
WRITTEN = "thread_written"
COPIED = "thread_copied"
RAN = "thread_ran"
"""The types of the lines of a thread's log. The `task` of a copy is the id of the run
that it was copied from; that of `RAN`, which is written once per run of the engine, is
that run's name.
"""


def is_thread(run: Run) -> bool:
    """Return whether a run is a thread of another engine."""
    return run.fingerprint == FINGERPRINT


def find_thread(thread: str) -> Run | None:
    """Return the run of a thread, if there is one. One query, two where there is none."""
    run, _ = run_or_key(thread)
    return run


def run_or_key(thread: str) -> tuple[Run | None, str]:
    """Return the run of a thread and its key; without a run, the key for a new one.
    Keys of removed runs are never reused, and another run may have the key, so the next
    thread of that name gets a number.
    """
    base = _base_of(thread)
    for first in count(1, _KEYS_AT_ONCE):
        keys = _numbered(base, first)
        runs = {run.key: run for run in Run.objects.filter(key__in=keys)}
        for key in keys:
            if key in runs and is_thread(runs[key]):
                return runs[key], key
        removed = RemovedKey.objects.filter(key__in=keys)
        taken = {*runs, *removed.values_list("key", flat=True)}
        for key in keys:
            if key not in taken:
                return None, key
    raise AssertionError("count ends")


def _numbered(base: str, first: int) -> list[str]:
    """Return the keys of a thread from a number on, the first without one."""
    keys = []
    for number in range(first, first + _KEYS_AT_ONCE):
        keys.append(base if number == 1 else f"{base}{_BEFORE_NUMBER}{number}")
    return keys


def all_threads() -> "Iterator[tuple[str, Run]]":
    """Yield all threads, the newest first, with their names; none that was imported."""
    threads = Run.objects.filter(fingerprint=FINGERPRINT, imported=False)
    # No cursor stays open, because the caller may close the connection between two
    # threads.
    ids = threads.order_by("-created_at", "-id").values_list("id", flat=True)
    for id_ in list(ids):
        run = Run.objects.filter(id=id_).first()
        if run is None:
            continue
        quoted, *_ = run.key.removeprefix(_PREFIX).split(_BEFORE_NUMBER)
        yield unquote(quoted), run


def place_of(namespace: str) -> str:
    """Return the name of a namespace as a line of the log holds it."""
    if len(namespace) <= _LONGEST_PLACE:
        return namespace
    return f"#{sha256(namespace.encode()).hexdigest()}"


def name_of_engine_run(id_: object) -> str:
    """Return the name of another engine's run as a line of the log holds it; empty if
    it is not an id.
    """
    if not isinstance(id_, str):
        return ""
    if len(id_) <= LONGEST_ID:
        return id_
    return f"#{sha256(id_.encode()).hexdigest()}"


def checked_id(id_: str) -> str:
    """Return the id of a checkpoint. Raises `InvalidValue` if no line can hold it."""
    if not isinstance(id_, str) or not 1 <= len(id_) <= LONGEST_ID:
        raise InvalidValue(
            f"the id of a checkpoint has 1 to {LONGEST_ID} characters",
            path="checkpoint_id",
        )
    return id_


def _base_of(thread: str) -> str:
    """Return the key of a thread without a number. Raises `InvalidValue`."""
    if not isinstance(thread, str) or not thread:
        raise InvalidValue("the id of a thread is a text", path="thread_id")
    try:
        quoted = quote(thread, safe=" @+=,")
    except UnicodeEncodeError as error:
        raise InvalidValue("the id of a thread is a text", path="thread_id") from error
    # Quoting leaves it unchanged.
    key = _PREFIX + quoted.replace(_BEFORE_NUMBER, "%7E")
    if len(key) > LONGEST_KEY - _ROOM:
        raise InvalidValue(
            f"the id of a thread has at most {LONGEST_KEY - _ROOM - len(_PREFIX)}"
            " characters, of which each that is not plain counts three times",
            path="thread_id",
        )
    return key
