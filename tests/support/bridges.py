"""The other side of a bridge: a site with one inbox, a worker that opens what is asked,
and a person who decides.
"""

from typing import Any

import httpx
from django.test import Client as Browser
from django.urls import reverse

from approvals import reviews
from approvals.models import Receipt
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import asking, runs, tokens
from orchestrator.client import Client
from orchestrator.graphs import NAME
from tests.support.approvals import payers
from tests.support.cast import People
from tests.support.processes import until

PATIENCE = 120.0
"""Seconds in which a program of elsewhere begins, on the slowest of machines."""


class LosingAnswers(httpx.HTTPTransport):
    """A network that loses the first answers, and delivers what is sent, or not."""

    def __init__(self, losses: int, *, delivers: bool = True) -> None:
        super().__init__()
        self.losses = losses
        self.delivers = delivers

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.losses and not self.delivers:
            self.losses -= 1
            raise httpx.ConnectError("nobody is there")
        response = super().handle_request(request)
        if self.losses == 0:
            return response
        self.losses -= 1
        response.close()
        raise httpx.ReadError("the connection is gone")


class Office:
    """The site, where Olive's token asks and Rita decides."""

    def __init__(self, url: str, people: People) -> None:
        payers(people.reviewer)
        self.url = url
        self.reviewer = people.reviewer
        self.token = tokens.make_token(people.starter, scopes=["start", "read"])
        self.client = Client(url, token=self.token)

    def client_that_loses(self, losses: int) -> Client:
        """Return a client that gets no answer to its first calls, and gives up."""
        transport = LosingAnswers(losses)
        return Client(self.url, token=self.token, retries=0, transport=transport)

    def client_without_answers(self, losses: int) -> Client:
        """Return a client whose first calls do not arrive, and which gives up."""
        transport = LosingAnswers(losses, delivers=False)
        return Client(self.url, token=self.token, retries=0, transport=transport)

    def asked(self, number: int = 1) -> list[asking.Approval]:
        """Return what people are asked, the oldest first, once it is so many."""
        runs_asked = Run.objects.filter(graph=NAME).order_by("created_at")
        until(
            lambda: runs_asked.count() >= number,
            seconds=PATIENCE,
            what=f"{number} questions",
        )
        return [asking.approval_of(runs.advance(run.id)) for run in runs_asked]

    def outcomes(self) -> list[str | None]:
        """Return what was reported of each item that people were asked about, in order."""
        return [item.outcome and item.outcome.result for item in self._items()]

    def details(self) -> list[str]:
        """Return the texts of what was reported."""
        return [item.outcome.detail for item in self._items() if item.outcome]

    def _items(self) -> list[asking.ItemStanding]:
        return [item for asked in self.asked() for item in asked.items]

    def inbox(self) -> str:
        """Return the page of what Rita has decided."""
        return self._page(reverse("inbox"), {"folder": "decided"})

    def receipts(self) -> str:
        """Return the pages of all receipts."""
        ids = Receipt.objects.order_by("id").values_list("id", flat=True)
        return " ".join(self._page(reverse("receipt", args=[id])) for id in ids)

    def _page(self, address: str, query: Any = None) -> str:
        browser = Browser()
        browser.force_login(self.reviewer)
        page = browser.get(address, query).content.decode()
        return " ".join(page.replace("<bdi>", "").replace("</bdi>", "").split())

    def decide(
        self,
        asked: asking.Approval,
        verdict: str,
        *,
        value: Any = None,
        reason: str = "",
    ) -> None:
        """Decide on the one item of an approval, and let a worker go on with it."""
        [item] = asked.items
        decision = {"write": str(item.write), "hash": item.hash, "verdict": verdict}
        if verdict == "edit":
            decision["value"] = value
        decision["reason"] = reason
        reviews.sign(asked.run.id, [decision], by=self.reviewer)
        runs.advance(asked.run.id)
        assert verify_run(asked.run.id) == []
