"""A program of elsewhere, whose workflows run on DBOS and pay what was signed. It does what
lines on its standard input say, and answers each with a line.
"""

import json
import os
import signal
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from orchestrator.bridges.dbos import step_when_signed, wake
from orchestrator.client import Approval, Client, Unreachable

URL, TOKEN, FOLDER, PAUSE = sys.argv[1:]
CRASH = Path(FOLDER) / "crash"
LOSS = Path(FOLDER) / "loss"


class MortalClient(Client):
    """A client whose process dies once, before it reads again what was decided, or which
    loses an answer once.
    """

    has_seen_decision = False

    def ask(self, **question: Any) -> Approval:
        approval = super().ask(**question)
        if LOSS.exists():
            LOSS.unlink()
            raise Unreachable("the answer is lost", call="POST approvals/")
        return approval

    def approval(self, id_or_key: str) -> Approval:
        if self.has_seen_decision and CRASH.exists():
            CRASH.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        approval = super().approval(id_or_key)
        self.has_seen_decision = approval.decided
        return approval


client = MortalClient(URL, token=TOKEN)


@step_when_signed(
    client,
    reviewers=["group:payers"],
    title=lambda arguments: f"Pay {arguments['invoice']}",
    look_every=float(PAUSE),
    look_at_least_every=float(PAUSE),
)
def pay(invoice: str, amount: Decimal) -> str:
    with (Path(FOLDER) / "paid").open("a") as paid:
        paid.write(f"{invoice} {amount + 0}\n")
    return f"{invoice} paid"


@DBOS.workflow()
def settle(invoice: str, amount: str) -> str:
    return pay(invoice, amount)


def start(workflow: str, invoice: str, amount: str) -> str:
    with SetWorkflowID(workflow):
        return DBOS.start_workflow(settle, invoice, amount).workflow_id


def result(workflow: str) -> str:
    try:
        return str(DBOS.retrieve_workflow(workflow).get_result())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def fork(workflow: str, step: int) -> str:
    return DBOS.fork_workflow(workflow, step).workflow_id


def wake_up(approval: str) -> None:
    wake(client.approval(approval))


def false_message(workflow: str, approval: str) -> None:
    DBOS.send(workflow, "approved", topic=approval)


def main() -> None:
    config: Any = {
        "name": "shop",
        "application_version": "1",
        "system_database_url": f"sqlite:///{FOLDER}/dbos.sqlite3",
        "log_level": "ERROR",
        "notification_listener_polling_interval_sec": 0.05,
    }
    DBOS(config=config)
    DBOS.launch()
    acts = {act.__name__: act for act in (start, result, fork, wake_up, false_message)}
    for line in sys.stdin:
        act, *arguments = json.loads(line)
        print(json.dumps(acts[act](*arguments)), flush=True)


if __name__ == "__main__":
    main()
