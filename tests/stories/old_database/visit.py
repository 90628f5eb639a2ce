"""Migrates the old database, verifies it, and reads all of it at the API and on the pages. At its end it resumes the
fork whose id it is given, which has no row that the API could name.

`python -m` this module, in the environment of the test, which is given what was found as JSON.
"""

import io
import json
import sys
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402

from checkpoints.store import CheckpointStore  # noqa: E402
from tests.stories.old_database import graphs  # noqa: E402

PARTS = ("checkpoints", "events", "decisions")


def verified() -> Any:
    """What `verify_runs` says."""
    said = io.StringIO()
    call_command("verify_runs", as_json=True, stdout=said)
    return json.loads(said.getvalue())


def read() -> dict[str, Any]:
    """Each run by its key: what the API says of it, its parts, and the state at each of its checkpoints."""
    client = Client(headers={"Authorization": f"Token {graphs.TOKENS['olive']}"})

    def get(path: str) -> Any:
        answer = client.get(f"/api/v1{path}")
        assert answer.status_code == 200, (path, answer.content)
        return answer.json()

    found = {}
    for run in get("/runs/?page_size=200")["results"]:
        parts = {part: get(f"/runs/{run['id']}/{part}/?page_size=200")["results"] for part in PARTS}
        states = [get(f"/checkpoints/{line['id']}/state/")["scratch"] for line in parts["checkpoints"]]
        found[run["key"]] = {**get(f"/runs/{run['id']}/"), **parts, "states": states}
    return found


def shown(keys: list[str]) -> dict[str, int]:
    """The pages of each run, and those of the house, with the status of each."""
    pages = {
        "olive": [f"/runs/{key}/{tab}" for key in keys for tab in ("", "?tab=events")],
        "rita": ["/reviews/", "/reviews/open/", "/reviews/one of two/", "/reviews/encrypted/"],
        "stella": ["/", "/runs/", "/graphs/", "/graphs/old_payment/", "/workers/"],
    }
    found = {}
    for name, paths in pages.items():
        client = Client()
        client.force_login(User.objects.get(username=name))
        found |= {path: client.get(path, follow=True).status_code for path in paths}
    return found


if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    runs = read()
    cellar = CheckpointStore().load(graphs.CELLAR).state
    print(json.dumps({"verified": verified(), "runs": runs, "shown": shown(list(runs)), "cellar": cellar}))
    call_command("resume_run", sys.argv[1], stdout=io.StringIO())
