"""A contender's process: reads requests, one JSON object a line, calls the verb of that
name, writes its answer.

Started by `bench.contender` as `python -m bench.contenders.serve MODULE`.
"""

import json
import os
import signal
import sys
from importlib import import_module
from typing import Any, TextIO

from bench.counting import connections

OURS = "bench.contenders.ours"
_answers: list[TextIO] = []


def answer(value: dict[str, Any]) -> None:
    """Answer the request in hand; verbs that do not live long enough to return call it
    themselves.
    """
    _answers[0].write(json.dumps(value) + "\n")
    _answers[0].flush()


def last_words(value: dict[str, Any]) -> None:
    """Answer, and be killed like a process that had no time to clean up."""
    answer(value)
    os.kill(os.getpid(), signal.SIGKILL)


def main(module: str) -> None:
    # What a library prints must not get between the answers.
    _answers.append(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    connections.watch()
    if module == OURS:
        import django

        django.setup()
    verbs = import_module(module)
    for line in sys.stdin:
        message = json.loads(line)
        verb = message.pop("verb")
        answer({} if verb == "ready" else getattr(verbs, verb)(**message))
    verbs.close()


if __name__ == "__main__":
    import bench.contenders.serve as this

    this.main(sys.argv[1])
