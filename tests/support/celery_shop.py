"""A worker of Celery in a process of its own, whose task dies once, just before it pays."""

import os
import signal
import sys
from pathlib import Path

from celery import Celery

from orchestrator.bridges.celery import runs_when_signed
from orchestrator.client import Client

BROKER, URL, TOKEN, FOLDER, RESTORE_AFTER = sys.argv[1:]
CRASH = Path(FOLDER) / "crash"
app = Celery("shop", broker=BROKER)
# What a dead worker had not finished is handed out again after so many seconds.
app.conf.broker_transport_options = {"visibility_timeout": int(RESTORE_AFTER)}


@runs_when_signed(
    app,
    Client(URL, token=TOKEN),
    reviewers=["group:payers"],
    look_every=1,
    look_at_least_every=1,
    options={"name": "shop.pay"},
)
def pay(invoice: str, amount: str) -> None:
    if CRASH.exists():
        CRASH.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    with (Path(FOLDER) / "paid").open("a") as paid:
        paid.write(f"{invoice} {amount}\n")


if __name__ == "__main__":
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", *quiet])
