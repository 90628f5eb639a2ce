"""What a command does with `--by` needs that person's rights; a refusal changes nothing
and leaves one audit line.
"""

import contextlib
import importlib
import io
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command

from approvals.models import Decision
from checkpoints import bundle
from checkpoints.models import AuditLine, Run
from orchestrator.management import commands
from tests.support import cast
from tests.support.histories import policy
from tests.support.paid_claims import paid
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)

POINT = "key of traveller:step-1"
KEY = "key of traveller"
SEEN: dict[str, tuple[list[str], str]] = {
    "cancel_run": ([KEY], "steer_run"),
    "erase": ([KEY, "--reason", "r"], "manage_retention"),
    "export_receipt": (["DECISION", "FILE"], ""),
    "export_run": ([KEY, "FILE"], "export_run"),
    "fork_run": ([POINT], "steer_run"),
    "fork_runs": (["--graph", "traveller", "--status", "completed"], "steer_run"),
    "import_run": (["BUNDLE"], "import_run"),
    "prune_runs": (["--confirm", "4"], "manage_retention"),
    "replay_run": ([POINT], "steer_run"),
    "restored": (["--reason", "r"], "manage_retention"),
    "resume_run": ([KEY], "steer_run"),
    "rewind_run": ([KEY, POINT, "--reason", "r"], "steer_run"),
    "rotate_keys": ([], "manage_retention"),
    "seal_anew": ([], "manage_retention"),
    "settle_run": ([KEY, "pay:1:0", "--did-not", "--reason", "r"], "settle_task"),
    "start_run": (
        ["traveller", "--key", "NEW", "--file", f"a={__file__}"],
        "start_run",
    ),
    "verify_runs": (["--mark"], "steer_run"),
}
"""Command -> words that would do something, and the right that it takes. Who may not
have a receipt is told that there is no decision, and leaves no line.
"""
READS = {
    "fork_run": [POINT, "--plan"],
    "replay_run": [POINT, "--plan"],
    "resume_run": [KEY, "--plan"],
    "rewind_run": [KEY, POINT, "--plan"],
}
"""What only reads takes the right to see the run."""


def with_by() -> list[str]:
    """The commands that take `--by`, as they are found."""
    names = [module.name for module in pkgutil.iter_modules(commands.__path__)]
    by_name = {
        name: importlib.import_module(f"{commands.__name__}.{name}").Command()
        for name in names
    }
    return [
        name
        for name, command in by_name.items()
        if "--by" in command.create_parser("manage.py", name)._option_string_actions
    ]


@pytest.fixture
def run(people: cast.People) -> Run:
    policy("traveller", keep_last=0)
    return paid("traveller", people)


@pytest.fixture
def watcher(db: None) -> User:
    """See every run, and may do nothing."""
    return _with_rights("walter", "view_run")


def _with_rights(name: str, *rights: str) -> User:
    user = cast.UserFactory.create(username=name)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    return user


def _words(words: list[str], run: Run, folder: Path) -> list[str]:
    decision = Decision.objects.filter(run=run.id).values_list("id", flat=True).first()
    there = {
        "DECISION": str(decision),
        "FILE": str(folder / "out"),
        "BUNDLE": str(folder / "bundle"),
    }
    return [there.get(word, word) for word in words]


def _call(name: str, *words: str) -> str:
    out = io.StringIO()
    call_command(name, *words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


@pytest.fixture
def folder(run: Run, tmp_path: Path, settings: Any) -> Path:
    """Return where the files of the commands are, with a bundle of the run."""
    settings.MEDIA_ROOT = tmp_path / "files"
    bundle.export(run.id, tmp_path / "bundle")
    return tmp_path


def test_a_person_without_the_right_is_refused_and_only_an_audit_line_is_left(
    run: Run, watcher: User, folder: Path
) -> None:
    before = contents()
    for name in with_by():
        words, right = SEEN[name]
        lines = AuditLine.objects.count()
        with pytest.raises(
            CommandError,
            match=f"lack the right {right}" if right else "there is no decision",
        ):
            _call(name, *_words(words, run, folder), "--by", watcher.username)
        left = [
            (line.kind, line.actor, line.facts)
            for line in AuditLine.objects.order_by("id")[lines:]
        ]
        assert left == (
            [("refused_right", watcher, {"right": right})] if right else []
        ), name
        assert contents() == before, name
        assert [path.name for path in folder.iterdir()] == ["bundle"], name


def test_who_holds_the_right_is_not_asked_for_another_one(
    run: Run, folder: Path
) -> None:
    for name in with_by():
        words, right = SEEN[name]
        able = _with_rights(f"able to {name}", "view_run", right or "view_audit")
        with contextlib.suppress(CommandError):
            _call(name, *_words(words, run, folder), "--by", able.username)
        assert not AuditLine.objects.filter(kind="refused_right").exists(), name


def test_a_person_who_sees_nothing_learns_nothing(
    run: Run, people: cast.People, folder: Path
) -> None:
    before = contents()
    for name in with_by():
        for words in (
            line for line in (SEEN[name][0], READS.get(name)) if line is not None
        ):
            with pytest.raises(
                CommandError,
                match="lack the right|there is no (run|checkpoint|decision)",
            ):
                _call(name, *_words(words, run, folder), "--by", people.nobody.username)
    assert contents() == before


def test_what_a_person_may_not_see_is_not_told_by_a_key_or_a_fact(
    run: Run, people: cast.People
) -> None:
    """Who may start or erase, and sees only what is theirs."""
    assert "1 of 1 verified" in _call(
        "verify_runs", KEY, "--by", people.starter.username
    )
    own = _with_rights("own", "start_run", "manage_retention")
    Run.objects.update(facts={"claim": "1"})
    for words, line in (
        (("start_run", "traveller", "--key", KEY), "this key is taken"),
        (("erase", KEY), "there is no run"),
        (("erase", "--fact", "claim=1", "--dry-run"), "no run has the fact"),
        (("replay_run", POINT, "--plan"), "there is no checkpoint"),
        (("replay_run", KEY, "--report"), "there is no run"),
        (("resume_run", POINT), "there is no run"),
        (("verify_runs", KEY), "there is no run"),
    ):
        with pytest.raises(CommandError, match=line):
            _call(*words, "--by", own.username)
