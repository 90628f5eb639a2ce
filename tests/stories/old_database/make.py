"""Makes the old database: `python make.py [FILE]`, in a checkout of the version that is
to have written it.

It uses only what every version has: the verbs, the commands and the models.
"""

import gzip
import io
import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CHECKOUT = Path.cwd()
SCRATCH = Path(tempfile.mkdtemp(prefix="old-database-"))
sys.path[:0] = [str(CHECKOUT), str(HERE)]
os.environ.update(
    DJANGO_SETTINGS_MODULE="orchestrator.settings",
    COUNTERSIGN_DEMO="true",
    COUNTERSIGN_DATA_DIR=str(SCRATCH),
    COUNTERSIGN_LEASE_SECONDS="2",
    OLD_DATABASE_BROKEN="yes",
    OLD_DATABASE_OUTSIDE=str(SCRATCH / "outside.log"),
)
import graphs  # noqa: E402

os.environ.update(graphs.ENVIRONMENT)

import django  # noqa: E402

django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, connections  # noqa: E402

from approvals import reviews  # noqa: E402
from checkpoints import timeline  # noqa: E402
from checkpoints.conf import keyring  # noqa: E402
from checkpoints.models import PendingWrite  # noqa: E402
from checkpoints.sealing import sealed_rows  # noqa: E402
from checkpoints.store import CheckpointStore  # noqa: E402
from orchestrator import runs, tokens  # noqa: E402
from orchestrator.engine import Graph, registry  # noqa: E402
from orchestrator.engine.errors import NotAReviewer  # noqa: E402
from orchestrator.models import ApiToken, Preference  # noqa: E402


def make_people() -> None:
    """Olive, who starts; Rita and Ravi, who review; Stella, who may everything; Nobody.
    Three of them have a token.
    """
    claims = Group.objects.create(name="claims")
    for name, role in (
        ("olive", "operator"),
        ("rita", "reviewer"),
        ("ravi", "reviewer"),
        ("stella", "steward"),
    ):
        user = User.objects.create_user(name)
        user.groups.add(
            Group.objects.get(name=role), *([claims] if role == "reviewer" else [])
        )
        if name in graphs.TOKENS:
            call_command("create_token", name, stdout=io.StringIO())
            row = ApiToken.objects.get(user=user)
            digest = tokens.keyed_digest(
                keyring().signer, tokens.token_digest(graphs.TOKENS[name])
            )
            row.save(
                update_fields=sealed_rows.seal_again(
                    row, sealed_rows.PLAIN, digest=digest
                )
            )
    User.objects.create_user("nobody")
    Preference.objects.create(user=User.objects.get(username="rita"), theme="dark")


def started(graph: str, key: str, *, number: str = "", advance: bool = True) -> Any:
    run = runs.start(
        graph, {"number": number or key}, key=key, by=User.objects.get(username="olive")
    )
    return runs.advance(run.id) if advance else run


def sign(run: Any, by: str, *verdicts: Any) -> None:
    """Decide the writes in order."""
    items = []
    for row, verdict in zip(
        PendingWrite.objects.filter(run=run).order_by("position"), verdicts, strict=True
    ):
        word, value = verdict if isinstance(verdict, tuple) else (verdict, None)
        item = {
            "write": str(row.write),
            "hash": row.hash,
            "verdict": word,
            "reason": f"{by} says {word}",
        }
        items.append({**item, "value": value} if word == "edit" else item)
    reviews.sign(run.id, items, by=User.objects.get(username=by))


def make_runs_that_ended() -> None:
    """Completed after an edit and a rejection, completed after a refusal, cancelled,
    and two that remember.
    """
    started("old_remember", "remembered", number="blue")
    run = started("old_payment", "completed")
    sign(run, "rita", ("edit", {"amount": 9}), "reject", "approve")
    runs.advance(run.id)
    run = started("old_payment", "refused")
    sign(run, "rita", "reject", "reject", "reject")
    runs.advance(run.id)
    runs.cancel(started("old_payment", "cancelled").id, reason="no longer wanted")
    started("old_loop", "looped")


def make_runs_that_go_on() -> None:
    """Each status in which a run may be found."""
    started("old_payment", "open")
    sign(
        started("old_payment_of_two", "one of two"),
        "rita",
        "approve",
        "approve",
        "approve",
    )
    sign(
        started("old_payment", "signed"),
        "rita",
        "approve",
        "approve",
        ("edit", ["agreed by Rita"]),
    )
    started("old_secret_payment", "encrypted")
    started("old_fragile", "failed")
    started("old_remember", "remembered again", number="grey")
    started("old_letter", "unknown")
    started("old_patient", "waiting")
    started("old_recall", "queued", advance=False)
    dies = started("old_loop", "worker died", number="dies", advance=False)
    connections.close_all()
    if os.fork() == 0:
        runs.advance(dies.id)
        os._exit(0)  # its node should have ended this process
    os.wait()


def make_the_rest() -> None:
    """A store's own checkpoints, a fork without a row, a job, and a refusal in the
    audit log.
    """
    store = CheckpointStore()
    store.save(graphs.CELLAR, {"scratch": {"bottles": 7}}, node="shelf")
    store.fork(timeline.get_checkpoint("looped:at-5").id)
    call_command("verify_runs", job=True, stdout=io.StringIO())
    try:
        sign(runs.get("open"), "nobody", "approve", "approve", "approve")
    except NotAReviewer:
        return
    raise SystemExit("nobody may sign, and did")


def write(target: Path) -> None:
    """The database as one file, compressed."""
    path = connection.settings_dict["NAME"]
    connections.close_all()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode = DELETE")
    raw.execute("VACUUM")
    print(raw.execute("SELECT key, status FROM checkpoints_run ORDER BY id").fetchall())
    raw.close()
    target.write_bytes(gzip.compress(Path(path).read_bytes(), 9, mtime=0))
    shutil.rmtree(SCRATCH)
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    for graph in vars(graphs).values():
        if isinstance(graph, Graph):
            registry.register(graph)
    make_people()
    make_runs_that_ended()
    make_runs_that_go_on()
    make_the_rest()
    write(Path(sys.argv[1]) if sys.argv[1:] else HERE / "countersign.sqlite3.gz")
