"""`manage.py verify_receipt FILE`: verify that a receipt, and the values in it, are
what an installation signed.
"""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from checkpoints import bundle
from checkpoints.bundle.receipt_verifier import verify_receipt
from checkpoints.conf import trusted_keys
from checkpoints.core.visible_text import visible_text
from orchestrator.management import command_line
from orchestrator.management.commands.verify_bundle import key_from


class Command(command_line.ClearCommand):
    """Ends with 1 if the receipt is not as it was signed. Needs no database."""

    help = (
        "Verify a receipt offline, with a key that is given, one's own, "
        "or a trusted one."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the receipt")
        parser.add_argument(
            "--key", type=key_from, help="public key, 64 hexadecimal digits"
        )
        parser.add_argument(
            "--passkey",
            default="",
            metavar="FINGERPRINT",
            help="the passkey that must have signed it, as its person's account shows it",
        )
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["key"] is not None:
            # The settings are not read, so that a receipt can be verified without them.
            keys = [options["key"]]
        else:
            keys = [bundle.public_key(), *trusted_keys().values()]
        verdict = _verdict_by_any_key(options["file"], keys, passkey=options["passkey"])
        if options["as_json"]:
            facts = {"ok": verdict.ok, "reason": verdict.reason}
            self.stdout.write(json.dumps(facts, ensure_ascii=False))
        if not verdict.ok:
            raise CommandError(visible_text(verdict.reason))
        if not options["as_json"]:
            self.stdout.write(f"ok: {verdict.reason}" if verdict.reason else "ok")


def _verdict_by_any_key(
    file: str, keys: list[bytes], *, passkey: str
) -> bundle.Verdict:
    """Return the verdict by the first key that fits, else that by the first key."""
    verdicts = [verify_receipt(file, key, passkey=passkey) for key in keys]
    for verdict in verdicts:
        if verdict.ok:
            return verdict
    return verdicts[0]
