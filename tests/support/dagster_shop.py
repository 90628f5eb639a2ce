"""A shop whose jobs Dagster runs."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster

from orchestrator.bridges.dagster import paused_call
from tests.support.bridges import Office


class Shop:
    """A code location with two jobs, and the instance that keeps its runs."""

    def __init__(self, office: Office, folder: Path, *, client: Any = None) -> None:
        self.paid: list[str] = []
        self.folder = folder
        self.instance = dagster.DagsterInstance.local_temp(str(folder))

        def pay(invoice: str, amount: Decimal) -> str:
            self.paid.append(f"{invoice} {amount + 0}")
            return invoice

        paused = paused_call(client or office.client, pay, reviewers=["group:payers"])
        ask = paused.ask.with_retry_policy(dagster.RetryPolicy(max_retries=2))

        @dagster.op(config_schema={"invoice": str, "amount": str})
        def invoice(context: dagster.OpExecutionContext) -> dict[str, Any]:
            return dict(context.op_config)

        @dagster.job
        def propose() -> None:
            ask(invoice())

        @dagster.job
        def go_on() -> None:
            paused.run()

        self.paused = paused
        self.invoice = invoice
        self.propose = propose
        self.go_on = go_on
        self.sensor = paused.sensor_of(go_on)

    def ask(self, number: str, amount: str, **more: Any) -> Any:
        config = {"invoice": number, "amount": amount}
        return self.propose.execute_in_process(
            run_config={"ops": {"invoice": {"config": config}}},
            instance=self.instance,
            raise_on_error=False,
            **more,
        )

    def tick(self) -> list[Any]:
        context = dagster.build_sensor_context(instance=self.instance)
        requests: list[Any] = self.sensor.evaluate_tick(context).run_requests
        return requests

    def launch(self, request: Any) -> Any:
        return self.go_on.execute_in_process(
            run_config=request.run_config,
            tags=request.tags,
            instance=self.instance,
            raise_on_error=False,
        )

    def restart(self) -> None:
        self.instance.dispose()
        self.instance = dagster.DagsterInstance.local_temp(str(self.folder))
