"""`manage.py prune_runs`: remove what the policies of retention do not keep, or only count it."""

import json
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError
from django.template.defaultfilters import filesizeformat

from checkpoints import retention
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.models import RetentionPolicy
from checkpoints.retention import DryRun
from checkpoints.retention.kept_points import KEPT_BY_POLICY
from checkpoints.retention.rule import rule_of
from orchestrator.management import command_line, job_work


class Command(command_line.DatabaseCommand):
    """Ends with 1 where a policy is refused, or runs did not verify, so that nothing of them was removed."""

    help = "Remove the checkpoints and runs that the policies of retention do not keep."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("graph", nargs="*", help="only the policies of these graphs; all without any")
        parser.add_argument("--dry-run", action="store_true", help="only count, with examples and reasons")
        parser.add_argument(
            "--confirm",
            type=int,
            metavar="COUNT",
            help="how many checkpoints go; needed where a policy keeps only what must stay",
        )
        parser.add_argument("--job", action="store_true", help="leave it to the workers; the audit log says the result")
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        say: Callable[[str], None] = (lambda text: None) if options["as_json"] else self.stdout.write
        with command_line.one_clear_line():
            by, policies = command_line.actor(options, "manage_retention"), _policies(options["graph"])
            counted = [(policy, retention.dry_run(policy)) for policy in policies]
        for _, one in counted:
            say(_text(one))
        found: dict[str, Any] = {policy.graph: one.json() for policy, one in counted}
        bad = 0
        if not options["dry_run"]:
            _require_confirmed(counted, options["confirm"])
            for policy, one in counted:
                done, failed = _prune(policy, one, options, by, say)
                found[policy.graph] |= done
                bad += failed
        if options["as_json"]:
            self.stdout.write(json.dumps(found, ensure_ascii=False))
        elif not policies:
            self.stdout.write("There is no policy; make one in the admin.")
        if bad:
            raise CommandError(f"nothing was removed of {bad} runs: they do not verify, or were locked")


def _policies(graphs: list[str]) -> list[RetentionPolicy]:
    found = list(RetentionPolicy.objects.filter(graph__in=graphs) if graphs else RetentionPolicy.objects.all())
    if unknown := sorted(set(graphs) - {policy.graph for policy in found}):
        raise CommandError(f"there is no policy for {', '.join(unknown)}")
    return found


def _require_confirmed(counted: list[tuple[RetentionPolicy, DryRun]], confirmed: int | None) -> None:
    """Raise where a policy would keep nothing but what must stay, and the number was not said."""
    for policy, one in counted:
        count, kept = one.counts["checkpoints"], one.counts["kept"]
        kept_by_policy = KEPT_BY_POLICY in one.reasons and not rule_of(policy).removes_all
        if count and not kept_by_policy and confirmed != count:
            what = f"keeps only the {kept} that must stay: {count}" if kept else f"keeps nothing: all {count}"
            raise CommandError(
                f"the policy of {policy.graph} {what} checkpoints would be removed;"
                f" say --confirm {count} if that is meant"
            )


def _prune(
    policy: RetentionPolicy, counted: DryRun, options: dict[str, Any], by: Any, say: Callable[[str], None]
) -> tuple[dict[str, Any], int]:
    """Remove what a policy does not keep, here or by the workers: what is said of it, and how many runs were left."""
    with command_line.one_clear_line():
        if not options["job"]:
            refuse_open_transaction("prune_runs")
        job = retention.prune(policy, by=by, confirmed=counted.counts["checkpoints"])
    if options["job"]:
        say(f"Queued as job {job.id}.")
        return {"job": str(job.id)}, 0
    place = job_work.work_on(job.id, say) or {}
    done = {name: place.get(name, 0) for name in ("rows", "bytes", "runs", "skipped")}
    say(f"{policy.graph}: {done['rows']} checkpoints removed, {done['runs']} whole runs, {_size(done['bytes'])}")
    return {"removed": done}, int(done["skipped"])


def _text(one: DryRun) -> str:
    """A dry run as lines."""
    counts = one.counts
    first = f"{one.graph}: {counts['checkpoints']} checkpoints would be removed, {_size(one.bytes)}"
    lines = [f"{first}; {counts['runs']} whole runs; {counts['kept']} checkpoints stay"]
    lines += [f"  {row['count']}: {row['words']} (as of {row['example']})" for row in one.reasons.values()]
    lines += [f"  would go: {row['key']} at {row['seq']}, {row['bytes']} bytes" for row in one.examples]
    return "\n".join(lines)


def _size(size: int) -> str:
    return filesizeformat(size).replace("\xa0", " ")
