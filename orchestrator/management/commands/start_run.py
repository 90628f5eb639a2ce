"""`manage.py start_run GRAPH [INPUT.json]`: start a run, and with --wait follow it
until it rests or ends.
"""

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
"""Seconds that a queued run may wait before a warning that no worker is alive."""


class Command(command_line.DatabaseCommand):
    help = (
        "Start a run. Exit codes: 0 started (--wait: completed or at rest), "
        "1 refused, 3 ended otherwise, 4 stopped."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("graph", help="name of a registered graph")
        parser.add_argument(
            "input",
            nargs="?",
            help="a file with the input as a JSON object; - reads standard input",
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a field of the input",
        )
        parser.add_argument(
            "--file",
            action="append",
            default=[],
            metavar="NAME=PATH",
            help="upload into a field",
        )
        parser.add_argument(
            "--key", help="the run's key: starting it again gives the same run"
        )
        parser.add_argument(
            "--metadata",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a name of your own and its value",
        )
        parser.add_argument(
            "--priority", type=int, default=0, help="higher goes first; default 0"
        )
        parser.add_argument(
            "--in",
            type=float,
            default=0.0,
            dest="due_in",
            metavar="SECONDS",
            help="begin later",
        )
        parser.add_argument(
            "--wait", action="store_true", help="follow the run until it rests or ends"
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with command_line.one_clear_line():
            run = _start(options)
        if not options["wait"]:
            return self.stdout.write(command_line.run_text(run, options))

        report = command_line.progress_writer(self, options)
        report(f"{run.key}  {run.graph}")
        run = watch_run(run.id, report, self.stderr.write)
        self.stdout.write(command_line.run_text(run, options))
        code = command_line.exit_code(run.status)
        if code:
            sys.exit(code)
        return None


def _start(options: dict[str, Any]) -> Run:
    """Start the run of these options, or return the run that has their key."""
    by = command_line.actor(options, "start_run")
    pairs = [_parsed_pair(text) for text in options["set"]]
    files = [_split_pair(text) for text in options["file"]]
    # If a field is set twice, it is unclear which value was meant.
    _refuse_repeated([name for name, _ in (*pairs, *files)])
    fields = command_line.read_object(options["input"], "input") or {}
    fields |= dict(pairs)
    for name, path in files:
        fields[name] = _upload(path, by)
    request = runs.StartRequest(
        options["graph"],
        fields,
        options["key"],
        by,
        queued=runs.Queued(options["priority"], due_in=options["due_in"]),
        metadata=read_pairs(options["metadata"]),
    )
    # Without --by the system acts, whose rights are not checked.
    if by is None:
        run, _ = runs.start_or_find(request)
    else:
        run, _ = start_for(request)
    return run


def _refuse_repeated(names: Sequence[str]) -> None:
    try:
        refuse_repeated(names)
    except NotStrict as error:
        raise CommandError(f"the field {error}") from None


def _split_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CommandError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _parsed_pair(text: str) -> tuple[str, Any]:
    """Return a field and its value: text, which the types of the input convert;
    objects, lists and null are JSON.
    """
    name, value = _split_pair(text)
    # A number stays a text, so that an id with leading zeros loses none.
    if not value.startswith(("{", "[")) and value != "null":
        return name, value
    try:
        return name, parse_strict(value)
    except ValueError as error:
        raise CommandError(
            f"the value of {name} begins like JSON and is none: {error}"
        ) from error


def _upload(path: str, by: Any) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return uploads.save_upload(file, name=Path(path).name, by=by)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


def watch_run(
    run_id: UUID, report: Callable[[str], None], warn: Callable[[str], None]
) -> Run:
    """Report each change of status, node and progress, until the run neither waits for
    a worker nor has one.
    """
    last_line = ""
    begun = time.monotonic()
    warned = False
    while True:
        # Following a run needs no payload of it.
        run = Run.objects.defer("input", "seal").get(id=run_id)
        line = _line_of(run)
        if line != last_line:
            report(line)
            last_line = line
        if run.status not in command_line.WORKING:
            return run
        has_waited = time.monotonic() - begun > _PATIENCE
        if has_waited and not warned and not workers.any_alive():
            warn("no worker is alive; start one with: manage.py worker")
            warned = True
        time.sleep(_PAUSE)


def _line_of(run: Run) -> str:
    line = f"{run.status}, superstep {run.superstep}"
    if run.at_node:
        line += f" at {run.at_node}"
    if run.progress:
        line += f": {visible_text(command_line.progress(run))}"
    return line
