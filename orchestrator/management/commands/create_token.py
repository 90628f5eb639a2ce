"""`manage.py create_token USER`: create a token for the API, which is printed once and
never stored.
"""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from orchestrator import tokens
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    help = (
        "Make a token that acts as a user. It is printed once; only its digest is kept."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user")
        parser.add_argument(
            "--scopes",
            nargs="+",
            default=[*tokens.USUAL_SCOPES],
            metavar="SCOPE",
            help=f"of {', '.join(tokens.SCOPES)}; without it, all but erase",
        )
        parser.add_argument(
            "--name", default="", help="what it is for, to tell tokens apart"
        )
        parser.add_argument(
            "--days",
            type=int,
            help="for how long it is good; without it, until it is revoked",
        )
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        user = command_line.person(options["user"])
        if user is None:
            raise CommandError("name a user")
        # Scopes may be separated by blanks or by commas.
        scopes = [word for word in ",".join(options["scopes"]).split(",") if word]
        with command_line.one_clear_line():
            text = tokens.make_token(
                user, scopes=scopes, name=options["name"], days=options["days"]
            )
        if options["as_json"]:
            text = json.dumps({"token": text, "scopes": scopes})
        self.stdout.write(text)
