"""`manage.py start_run GRAPH [INPUT.json]`: start a run, and with --wait follow it until it rests or ends."""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from checkpoints import uploads
from checkpoints.core.strict_json import NotStrict, parse_strict, refuse_repeated
from checkpoints.core.visible_text import visible_text
from checkpoints.models import Run
from checkpoints.queue import workers
from orchestrator import runs
from orchestrator.management import command_line
from orchestrator.runs.metadata import read_pairs
from orchestrator.runs.start_for_user import start_for

_PAUSE = 0.2
_PATIENCE = 5.0
"""Seconds that a queued run may wait before somebody is told that no worker is alive."""


class Command(command_line.DatabaseCommand):
    help = "Start a run. Exit codes: 0 started (--wait: completed or at rest), 1 refused, 3 ended otherwise, 4 stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("graph", help="name of a registered graph")
        parser.add_argument("input", nargs="?", help="a file with the input as a JSON object; - reads standard input")
        parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a field of the input")
        parser.add_argument("--file", action="append", default=[], metavar="NAME=PATH", help="upload into a field")
        parser.add_argument("--key", help="the run's key: starting it again gives the same run")
        parser.add_argument(
            "--metadata", action="append", default=[], metavar="NAME=VALUE", help="a name of your own and its value"
        )
        parser.add_argument("--priority", type=int, default=0, help="higher goes first; default 0")
        parser.add_argument("--in", type=float, default=0.0, dest="due_in", metavar="SECONDS", help="begin later")
        parser.add_argument("--wait", action="store_true", help="follow the run until it rests or ends")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            by = command_line.actor(options, "start_run")
            pairs, files = [_pair(text) for text in options["set"]], [_named(text) for text in options["file"]]
            _refuse_repeated([name for name, _ in (*pairs, *files)])
            given = _input(options["input"]) | dict(pairs)
            given |= {name: _upload(path, by) for name, path in files}
            queued = runs.Queued(options["priority"], due_in=options["due_in"])
            metadata = read_pairs(options["metadata"])
            asked = runs.StartRequest(options["graph"], given, options["key"], by, queued=queued, metadata=metadata)
            run, _ = runs.start_or_find(asked) if by is None else start_for(asked)
        if not options["wait"]:
            return self._tell(run, options["as_json"])
        if not options["as_json"]:
            self.stdout.write(f"{run.key}  {run.graph}")
        quiet = options["as_json"]
        run = watch_run(run.id, (lambda line: None) if quiet else self.stdout.write, self.stderr.write)
        self._tell(run, quiet)
        if code := command_line.exit_code(run.status):
            sys.exit(code)
        return None

    def _tell(self, run: Run, as_json: bool) -> None:
        self.stdout.write(command_line.as_json(run) if as_json else command_line.as_text(run))


def _input(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        given = parse_strict(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the input from {path}: {error}") from error
    if not isinstance(given, dict):
        raise CommandError(f"the input in {path} is no JSON object")
    return given


def _refuse_repeated(names: Sequence[str]) -> None:
    try:
        refuse_repeated(names)
    except NotStrict as error:
        raise CommandError(f"the field {error}") from None


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CommandError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _pair(text: str) -> tuple[str, Any]:
    """A field and its value: text, which the types of the input convert; objects, lists and null are JSON."""
    name, value = _named(text)
    if not value.startswith(("{", "[")) and value != "null":
        return name, value
    try:
        return name, parse_strict(value)
    except ValueError as error:
        raise CommandError(f"the value of {name} begins like JSON and is none: {error}") from error


def _upload(path: str, by: Any) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return uploads.save_upload(file, name=Path(path).name, by=by)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


def watch_run(run_id: UUID, tell: Callable[[str], None], warn: Callable[[str], None]) -> Run:
    """Tell each change of status, node and progress, until the run neither waits for a worker nor has one."""
    facts, begun, warned = "", time.monotonic(), False
    while True:
        run = Run.objects.defer("input", "seal").get(id=run_id)
        where = f" at {run.at_node}" if run.at_node else ""
        done = f": {visible_text(command_line.progress(run))}" if run.progress else ""
        line = f"{run.status}, superstep {run.superstep}{where}{done}"
        if line != facts:
            tell(line)
            facts = line
        if run.status not in command_line.WORKING:
            return run
        if not warned and time.monotonic() - begun > _PATIENCE and not workers.any_alive():
            warn("no worker is alive; start one with: manage.py worker")
            warned = True
        time.sleep(_PAUSE)
