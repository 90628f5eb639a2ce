"""Migrates the old database, notes what is answered before its rows are sealed anew,
seals them anew, verifies them, and reads all of it at the API and on the pages. At its
end it resumes the fork whose id it is given, which has no row that the API could name.

`python -m` this module, in the environment of the test, which is given what was found
as JSON.
"""

import io
import json
import sys
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import CommandError, call_command  # noqa: E402
from django.test import Client  # noqa: E402

from checkpoints.models import Run  # noqa: E402
from checkpoints.store import CheckpointStore  # noqa: E402
from orchestrator import runs as runs_verbs  # noqa: E402
from orchestrator.engine.errors import CountersignError  # noqa: E402
from tests.stories.old_database import graphs  # noqa: E402

PARTS = ("checkpoints", "events", "decisions")


def verified() -> Any:
    """Return what `verify_runs` says."""
    output = io.StringIO()
    call_command("verify_runs", as_json=True, stdout=output)
    return json.loads(output.getvalue())


def read() -> dict[str, Any]:
    """Each run by its key: what the API says of it, its parts, and the state at each of
    its checkpoints.
    """
    client = Client(headers={"Authorization": f"Token {graphs.TOKENS['olive']}"})

    def get(path: str) -> Any:
        answer = client.get(f"/api/v1{path}")
        assert answer.status_code == 200, (path, answer.content)
        return answer.json()

    collected = {}
    for run in get("/runs/?page_size=200")["results"]:
        parts = {
            part: get(f"/runs/{run['id']}/{part}/?page_size=200")["results"]
            for part in PARTS
        }
        states = [
            get(f"/checkpoints/{line['id']}/state/")["scratch"]
            for line in parts["checkpoints"]
        ]
        collected[run["key"]] = {
            **get(f"/runs/{run['id']}/"),
            **parts,
            "states": states,
        }
    return collected


def shown(keys: list[str]) -> dict[str, int]:
    """The pages of each run, and those of the house, with the status of each."""
    pages = {
        "olive": [f"/runs/{key}/{tab}" for key in keys for tab in ("", "?tab=events")],
        "rita": [
            "/reviews/",
            "/reviews/open/",
            "/reviews/one of two/",
            "/reviews/encrypted/",
        ],
        "stella": ["/", "/runs/", "/graphs/", "/graphs/old_payment/", "/workers/"],
    }
    collected = {}
    for name, paths in pages.items():
        client = Client()
        client.force_login(User.objects.get(username=name))
        collected |= {path: client.get(path, follow=True).status_code for path in paths}
    return collected


def refused(command: str, *words: str) -> str:
    """Return what a command says before the rows are sealed anew."""
    try:
        call_command(command, *words, stdout=io.StringIO())
    except CommandError as error:
        return str(error)
    return ""


def before_renewal() -> dict[str, Any]:
    """Return what commands, a run's slice, page and API say of rows with older seals."""
    client = Client()
    client.force_login(User.objects.get(username="olive"))
    run = Run.objects.get(key="queued")
    answer = client.get("/api/v1/runs/open/checkpoints/").json()
    try:
        runs_verbs.advance(run.id)
        advanced = ""
    except CountersignError as error:
        advanced = error.code
    run.refresh_from_db()
    token = Client(headers={"Authorization": f"Token {graphs.TOKENS['olive']}"})
    return {
        "token": token.get("/api/v1/runs/").json().get("code"),
        "verify_runs": refused("verify_runs"),
        "worker": refused("worker"),
        "advanced": advanced,
        "status": run.status,
        "faults": [line["fault"] for line in answer["results"]],
        "page": client.get("/runs/open/").content.decode(),
    }


def sealed_anew() -> list[Any]:
    """Return what `seal_anew` counts, at first and when it is run again."""
    counts = []
    for _ in range(2):
        printed = io.StringIO()
        call_command("seal_anew", as_json=True, stdout=printed)
        counts.append(json.loads(printed.getvalue())["rows"])
    return counts


if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    before = before_renewal()
    renewed = sealed_anew()
    runs = read()
    cellar = CheckpointStore().load(graphs.CELLAR).state
    print(
        json.dumps(
            {
                "before": before,
                "renewed": renewed,
                "verified": verified(),
                "runs": runs,
                "shown": shown(list(runs)),
                "cellar": cellar,
            }
        )
    )
    call_command("resume_run", sys.argv[1], stdout=io.StringIO())
