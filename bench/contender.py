"""The driver's side of a contender: a process of its own that does the same work as the
others, on request.

A process each, so that no contender's threads or garbage slow another. Requests and
answers are lines of JSON.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.places import ROOT, Place

NAMES = {
    "countersign": "bench.contenders.ours",
    "langgraph": "bench.contenders.lang",
    "langgraph-async": "bench.contenders.lang",
    "dbos": "bench.contenders.dbos_",
}
"""Contender -> the module whose functions are its verbs."""
VARIABLES = {"langgraph-async": {"BENCH_DURABILITY": "async"}}
"""Contender -> the variables of its process that make it another than its module's."""


class Contender:
    """One running contender. Use it in a `with`; it ends with the block."""

    def __init__(self, name: str, place: Place, **environment: str) -> None:
        self.name = name
        self.place = place
        self.log: Path = place.folder / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.contenders.serve", NAMES[name]],
                cwd=ROOT,
                env=place.environment(**VARIABLES.get(name, {}), **environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.ask("ready")

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Have it do something. Raises `RuntimeError` with the end of its log where it
        failed.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(
                f"{self.name} failed at {verb}:\n{self.log.read_text()[-3000:]}"
            )
        read: dict[str, Any] = json.loads(answer)
        return read

    def ended(self) -> int:
        """Wait for its end, whichever way it comes. Gives the exit code."""
        return self._process.wait(60)

    def __enter__(self) -> "Contender":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ask it to end, and wait."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
