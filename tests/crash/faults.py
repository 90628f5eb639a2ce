"""Kill points for worker processes: an app that, once, sends SIGKILL to its own process
at a named moment.

The moments wrap the ledger's and the journal's own functions from outside; the product
has no hooks for it. COUNTERSIGN_KILL names the moment and the node,
COUNTERSIGN_KILL_MARK a file that makes it happen only once.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOMENTS = (
    "before_intent",
    "after_intent",
    "after_effect",
    "before_commit",
    "on_its_way",
    "after_commit",
)


def _die(moment: str, nodes: list[str]) -> None:
    wanted, _, node = os.environ["COUNTERSIGN_KILL"].partition(":")
    mark = Path(os.environ["COUNTERSIGN_KILL_MARK"])
    if moment == wanted and node in nodes and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def arm() -> None:
    """Wrap the functions that the moments lie before and after."""
    from checkpoints.journal import results as journal
    from checkpoints.ledger import commit as ledger

    def around(
        call: Callable[..., Any],
        before: str,
        after: str,
        nodes: Callable[..., list[str]],
    ) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if before:
                _die(before, nodes(*args, **kwargs))
            result = call(*args, **kwargs)
            if after:
                _die(after, nodes(*args, **kwargs))
            return result

        return wrapped

    journal.write_intents = around(
        journal.write_intents,
        "before_intent",
        "after_intent",
        lambda lease, intents, **_: [i.task.node for i in intents],
    )
    journal.write_results = around(
        journal.write_results,
        "after_effect",
        "",
        lambda lease, endings: [e.task.node for e in endings],
    )
    ledger.prepare_commit = _dying_around(ledger.prepare_commit)


def _dying_around(made: Callable[..., Any]) -> Callable[..., Any]:
    """A commit of the ledger, before it is sent, while nobody has waited for it, and
    when it is certain.
    """

    def wrapped(
        lease: Any, head: Any, point: Any, run_update: Any, **options: Any
    ) -> Any:
        it = made(lease, head, point, run_update, **options)
        nodes = [n["node"] for n in point.nodes]

        def send() -> Callable[[], None]:
            _die("before_commit", nodes)
            land = it.send()
            _die("on_its_way", nodes)

            def landing() -> None:
                land()
                _die("after_commit", nodes)

            return landing

        return type(it)(it.head, send)

    return wrapped
