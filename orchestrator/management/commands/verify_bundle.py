"""`manage.py verify_bundle FILE`: whether a bundle is what its house signed."""

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
    """Ends with 1 where the bundle is not as it was signed. Needs no database."""

    help = "Verify a bundle offline, with a key that is given, one's own, or a trusted one."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", help="the bundle")
        parser.add_argument("--key", type=key_from, help="public key, 64 hexadecimal digits")
        parser.add_argument("--own-key", action="store_true", help="print the public key of this installation")
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["own_key"]:
            return self.stdout.write(bundle.public_key().hex())
        if not options["file"]:
            raise CommandError("name the bundle to verify")
        keys = [options["key"]] if options["key"] is not None else [bundle.public_key(), *trusted_keys().values()]
        verdict = next((one for key in keys[:-1] if (one := bundle.verify(options["file"], key)).ok), None)
        verdict = verdict or bundle.verify(options["file"], keys[-1])
        if options["as_json"]:
            self.stdout.write(json.dumps(verdict._asdict(), ensure_ascii=False))
        if not verdict.ok:
            where = f"line {verdict.bad_line}: " if verdict.bad_line else ""
            raise CommandError(visible_text(f"{where}{verdict.reason}"))
        return None if options["as_json"] else self.stdout.write("ok")


def key_from(text: str) -> bytes:
    """A public key as it is printed. Raises `ArgumentTypeError`."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError("a public key is 64 hexadecimal digits")
    return bytes.fromhex(text)
