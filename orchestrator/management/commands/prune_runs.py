"""`manage.py prune_runs`: remove what the retention policies do not keep, or only count
it.
"""

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
    """Ends with 1 if a policy is refused, or if runs did not verify, so that nothing of
    them was removed.
    """

    help = "Remove the checkpoints and runs that the policies of retention do not keep."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "graph",
            nargs="*",
            help="only the policies of these graphs; all without any",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only count, with examples and reasons",
        )
        parser.add_argument(
            "--confirm",
            type=int,
            metavar="COUNT",
            help="how many checkpoints go; "
            "needed where a policy keeps only what must stay",
        )
        parser.add_argument(
            "--job",
            action="store_true",
            help="leave it to the workers; the audit log says the result",
        )
        command_line.add_by(parser)
        command_line.add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        report = command_line.progress_writer(self, options)
        with command_line.one_clear_line():
            by = command_line.actor(options, "manage_retention")
            policies = _policies(options["graph"])
            # All are counted first: one that is unclear stops them all.
            counted = [(policy, retention.dry_run(policy)) for policy in policies]

        results: dict[str, Any] = {}
        for policy, dry_run in counted:
            report(_text_of(dry_run))
            results[policy.graph] = dry_run.json()

        skipped_runs = 0
        if not options["dry_run"]:
            # Every policy is confirmed before the first one removes anything.
            _require_confirmed(counted, options["confirm"])
            for policy, dry_run in counted:
                result, skipped = _prune(policy, dry_run, options, by, report)
                results[policy.graph] |= result
                skipped_runs += skipped

        if options["as_json"]:
            self.stdout.write(json.dumps(results, ensure_ascii=False))
        elif not policies:
            self.stdout.write("There is no policy; make one in the admin.")
        if skipped_runs:
            raise CommandError(
                f"nothing was removed of {skipped_runs} runs: "
                "they do not verify, or were locked"
            )


def _policies(graphs: list[str]) -> list[RetentionPolicy]:
    """Return the policies of these graphs, or all. Raises `CommandError` for a graph
    without one.
    """
    rows = RetentionPolicy.objects.all()
    if graphs:
        rows = rows.filter(graph__in=graphs)
    policies = list(rows)
    unknown = sorted(set(graphs) - {policy.graph for policy in policies})
    if unknown:
        raise CommandError(f"there is no policy for {', '.join(unknown)}")
    return policies


def _require_confirmed(
    counted: list[tuple[RetentionPolicy, DryRun]], confirmed: int | None
) -> None:
    """Raise `CommandError` if a policy would keep only what must stay, and the number
    of checkpoints was not confirmed.
    """
    for policy, dry_run in counted:
        count = dry_run.counts["checkpoints"]
        must_stay = dry_run.counts["kept"]
        keeps_by_rule = (
            KEPT_BY_POLICY in dry_run.reasons and not rule_of(policy).removes_all
        )
        if not count or keeps_by_rule or confirmed == count:
            continue
        if must_stay:
            consequence = f"keeps only the {must_stay} that must stay: {count}"
        else:
            consequence = f"keeps nothing: all {count}"
        raise CommandError(
            f"the policy of {policy.graph} {consequence} checkpoints would be removed;"
            f" say --confirm {count} if that is meant"
        )


def _prune(
    policy: RetentionPolicy,
    counted: DryRun,
    options: dict[str, Any],
    by: Any,
    report: Callable[[str], None],
) -> tuple[dict[str, Any], int]:
    """Remove what a policy does not keep, here or by the workers. Returns the result as
    JSON, and how many runs were skipped.
    """
    with command_line.one_clear_line():
        if not options["job"]:
            refuse_open_transaction("prune_runs")
        # With the number that was reported, so that no other removal follows it.
        job = retention.prune(policy, by=by, confirmed=counted.counts["checkpoints"])
    if options["job"]:
        report(f"Queued as job {job.id}.")
        return {"job": str(job.id)}, 0

    place = job_work.work_on(job.id, report) or {}
    removed: dict[str, Any] = {}
    for name in ("rows", "bytes", "runs", "skipped"):
        removed[name] = place.get(name, 0)
    report(
        f"{policy.graph}: {removed['rows']} checkpoints removed, "
        f"{removed['runs']} whole runs, {_size(removed['bytes'])}"
    )
    return {"removed": removed}, int(removed["skipped"])


def _text_of(dry_run: DryRun) -> str:
    counts = dry_run.counts
    lines = [
        f"{dry_run.graph}: {counts['checkpoints']} checkpoints would be removed, "
        f"{_size(dry_run.bytes)}; {counts['runs']} whole runs; "
        f"{counts['kept']} checkpoints stay"
    ]
    for row in dry_run.reasons.values():
        lines.append(f"  {row['count']}: {row['words']} (as of {row['example']})")
    for row in dry_run.examples:
        lines.append(f"  would go: {row['key']} at {row['seq']}, {row['bytes']} bytes")
    return "\n".join(lines)


def _size(size: int) -> str:
    return filesizeformat(size).replace("\xa0", " ")
