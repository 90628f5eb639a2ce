"""`manage.py verify_bundle FILE`: verify that a bundle is as it was signed."""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from checkpoints import bundle
from checkpoints.conf import trusted_keys
from checkpoints.core.visible_text import visible_text
from orchestrator.management import command_line


class Command(command_line.ClearCommand):
    """Ends with 1 if the bundle is not as it was signed. Needs no database."""

    help = (
        "Verify a bundle offline, with a key that is given, one's own, "
        "or a trusted one."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", help="the bundle")
        parser.add_argument(
            "--key", type=key_from, help="public key, 64 hexadecimal digits"
        )
        parser.add_argument(
            "--own-key",
            action="store_true",
            help="print the public key of this installation",
        )
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["own_key"]:
            return self.stdout.write(bundle.public_key().hex())
        if not options["file"]:
            raise CommandError("name the bundle to verify")

        if options["key"] is not None:
            # The settings are not read, so that a bundle can be verified without them.
            keys = [options["key"]]
        else:
            keys = [bundle.public_key(), *trusted_keys().values()]
        verdict = _verdict_by_any_key(options["file"], keys)
        if options["as_json"]:
            self.stdout.write(json.dumps(verdict._asdict(), ensure_ascii=False))
        if not verdict.ok:
            where = f"line {verdict.bad_line}: " if verdict.bad_line else ""
            raise CommandError(visible_text(f"{where}{verdict.reason}"))
        if not options["as_json"]:
            self.stdout.write("ok")
        return None


def _verdict_by_any_key(file: str, keys: list[bytes]) -> bundle.Verdict:
    """Return the verdict by the first key that fits, else that by the last key."""
    for key in keys:
        verdict = bundle.verify(file, key)
        if verdict.ok:
            break
    return verdict


def key_from(text: str) -> bytes:
    """Return a public key from the form in which it is printed. Raises
    `ArgumentTypeError`.
    """
    # `bytes.fromhex` alone would take blanks, and a key of any length.
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError("a public key is 64 hexadecimal digits")
    return bytes.fromhex(text)
