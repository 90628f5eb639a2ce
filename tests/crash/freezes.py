"""Freezes inside transactions: a process that stops itself (SIGSTOP) at a statement,
with its locks in its hands.

`python -m tests.crash.freezes KIND MARK VERB RUN` does one act as a process of its own,
and freezes at the first statement of a transaction of that kind (those of
`tests.crash.lost`). Its pid is then in the file MARK. It ends with 0 where the act went
through or found its lease lost, with 3 where the database or the product refused it.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from tests.crash import lost
from tests.crash.abort import Watch, watching

REFUSED = 3
ALONE = {"claim", "begin", "give back", "heartbeat", "memory record"}
"""Kinds that are one statement, which is its own transaction: after it nothing is
locked.
"""


class Freeze(Watch):
    """Freezes once, behind a statement that took locks."""

    def __init__(self, kind: str, mark: Path) -> None:
        self.kind = kind
        self.mark = mark

    def after(self, link: BaseDatabaseWrapper, sql: str) -> None:
        takes_locks = sql.startswith(lost.WRITES) or " FOR UPDATE" in sql
        inside = link.in_atomic_block or self.kind in ALONE
        if takes_locks and inside and self.kind in lost.kinds_here():
            with suppress(FileExistsError):
                with self.mark.open("x") as file:
                    file.write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)


def _sign(run: str) -> None:
    from django.contrib.auth.models import User

    from checkpoints.models import Run
    from tests.support import run_actions

    run_actions.sign_open(
        Run.objects.get(id=run), User.objects.get(username="rita"), "approve"
    )


def _advance(run: str) -> None:
    from checkpoints.db.limits import limit_connections
    from orchestrator import runs

    limit_connections()  # as a cluster does
    runs.advance(run)


def _settle(run: str) -> None:
    from orchestrator import runs

    runs.settle(
        run, "post:1:0", happened=True, output={"notes": ["posted"]}, reason="seen"
    )


def _cancel(run: str) -> None:
    from orchestrator import runs

    runs.cancel(run, reason="no longer wanted")


def arm() -> None:
    """Freeze a process of this program, once: COUNTERSIGN_FREEZE names the kind,
    COUNTERSIGN_FREEZE_MARK the file.
    """
    _armed.enter_context(
        watching(
            Freeze(
                os.environ["COUNTERSIGN_FREEZE"],
                Path(os.environ["COUNTERSIGN_FREEZE_MARK"]),
            )
        )
    )


_armed = ExitStack()

VERBS: dict[str, Callable[[str], None]] = {
    "advance": _advance,
    "sign": _sign,
    "settle": _settle,
    "cancel": _cancel,
}


def main(words: list[str]) -> int:
    """Do the act, under the eyes of a `Freeze`. Gives the exit code."""
    import django

    django.setup()
    from django.db import Error

    from orchestrator.engine.errors import CountersignError
    from tests.crash import graphs

    kind, mark, verb, run = words
    graphs.fresh()
    facts: Any = None
    try:
        with watching(Freeze(kind, Path(mark))):
            VERBS[verb](run)
    except (Error, CountersignError) as error:
        facts = error
    print(repr(facts), flush=True)
    return REFUSED if facts is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
