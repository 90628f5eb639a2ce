"""`manage.py sync_groups`: bring the accounts of the company to what its directory says
now, without waiting for their next log-in.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import CommandError
from requests import RequestException

from checkpoints.conf import conf
from checkpoints.core.visible_text import visible_text
from orchestrator.account_changes import acting
from orchestrator.company_login import directory, scim
from orchestrator.company_login.directory import DirectoryChange
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    """Without `--apply` nothing is changed."""

    help = (
        "Bring groups and accounts of the company to what its directory lists (SCIM)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "files",
            nargs="*",
            metavar="FILE",
            help="lists of users and of groups, as SCIM 2.0 answers them, in JSON",
        )
        parser.add_argument(
            "--url",
            help="the address of the directory instead, as "
            "https://directory.example.org/scim/v2; COUNTERSIGN_SCIM_TOKEN opens it",
        )
        parser.add_argument(
            "--user-id",
            choices=("id", "externalId", "userName"),
            default="id",
            help="the attribute of a user that is their id at the provider",
        )
        parser.add_argument(
            "--group-id",
            choices=("displayName", "id", "externalId"),
            default="displayName",
            help="the attribute of a group that COUNTERSIGN_COMPANY_GROUPS names",
        )
        parser.add_argument(
            "--apply",
            action="store_true",
            help="do it; without it, only print what would be done",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        report = command_line.progress_writer(self, options)
        by = command_line.person(options["by"])
        if by is not None and not by.has_perm("auth.change_user"):
            raise CommandError(f"{options['by']} may not change accounts")
        if not conf().company_issuer:
            raise CommandError(
                "no provider is configured (COUNTERSIGN_OIDC_ISSUER, or "
                "COUNTERSIGN_SAML_ISSUER)"
            )

        changes: list[DirectoryChange] = []
        for change in _changes(options, by):
            report(_text_of(change, is_done=options["apply"]))
            changes.append(change)

        if options["as_json"]:
            result = {
                "applied": options["apply"],
                "changes": [change.json() for change in changes],
            }
            self.stdout.write(json.dumps(result, ensure_ascii=False))
        report(_summary(len(changes), is_done=options["apply"]))


def _changes(options: dict[str, Any], by: Any) -> Iterator[DirectoryChange]:
    """Yield what the lists change, each once it is done where that is asked for. Raises
    `CommandError`.
    """
    for planned in _planned(options):
        if not options["apply"]:
            yield planned
            continue
        with acting(by):
            done = directory.apply(planned)
        if done is not None:
            yield done


def _planned(options: dict[str, Any]) -> list[DirectoryChange]:
    """Return what the lists change. Raises `CommandError`."""
    attributes = scim.Attributes(user=options["user_id"], group=options["group_id"])
    # First: a log-in while the directory is read is newer than its list.
    bound = directory.bound_accounts()
    try:
        users = scim.users_in(_resources(options), attributes, conf().company_groups)
        return directory.planned_changes(bound, users)
    except scim.UnreadableDirectory as error:
        raise CommandError(
            f"nothing was changed: {visible_text(str(error))}"
        ) from error
    except RequestException as error:
        # Its text may quote the address with what stands in it.
        raise CommandError(
            f"nothing was changed: the directory does not answer ({type(error).__name__})"
        ) from error


def _resources(options: dict[str, Any]) -> Iterator[scim.Resource]:
    """Return the resources of the files, or of the address. Raises `CommandError`."""
    address = options["url"]
    if bool(address) == bool(options["files"]):
        raise CommandError("name files, or an address with --url")
    if not address:
        return chain.from_iterable(_resources_of(path) for path in options["files"])
    if not _is_private(address):
        raise CommandError("--url must begin with https://: it is sent a token")
    if not conf().scim_token:
        raise CommandError("COUNTERSIGN_SCIM_TOKEN is not set")
    return scim.resources_of(address, conf().scim_token)


def _is_private(address: str) -> bool:
    """Return whether nobody on the way can read what is sent to an address."""
    parts = urlsplit(address)
    is_here = parts.hostname in ("127.0.0.1", "localhost")
    return parts.scheme == "https" or (parts.scheme == "http" and is_here)


def _resources_of(path: str) -> list[scim.Resource]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
    return scim.resources_of_file(text)


def _text_of(change: DirectoryChange, *, is_done: bool) -> str:
    acts: list[str] = []
    if change.groups.added:
        acts.append(f"in {', '.join(change.groups.added)}")
    if change.groups.removed:
        acts.append(f"out of {', '.join(change.groups.removed)}")
    if change.switched_off:
        acts.append("switched off")
    verb = "is" if is_done else "would be"
    return visible_text(f"{change.name} {verb} {'; '.join(acts)}")


def _summary(count: int, *, is_done: bool) -> str:
    if not count:
        return "Every account is as the directory says."
    if is_done:
        return f"{count} accounts changed."
    return f"{count} accounts would change. Nothing was done; --apply does it."
