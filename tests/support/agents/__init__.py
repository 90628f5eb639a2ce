"""Agents of other libraries that pay, once people have signed. Each is a process with an
agent that makes some calls and then repeats what came of them; what it leaves behind for
the next process is what its library can keep.
"""

from typing import Any, Protocol, Self

from orchestrator.client import Approval, Client

Calls = list[tuple[str, dict[str, Any]]]
Site = tuple[str, str]
"""Where to report, and with which token."""
REVIEWERS = ["group:payers"]
TWO: Calls = [
    ("pay", {"invoice": "a", "amount": 10}),
    ("pay", {"invoice": "b", "amount": 20}),
]


class Shop:
    """The tools, and what they did."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay(self, invoice: str, amount: int) -> str:
        """Pay an invoice."""
        self.paid.append((invoice, amount))
        return f"paid {amount}"

    def refund(self, invoice: str, amount: int) -> str:
        """Take money back."""
        self.paid.append((invoice, -amount))
        return f"refunded {amount}"


class Payer(Protocol):
    """A process. `pause` starts the agent, which stops for people; `go_on` lets it end,
    and returns what it says; `report` reports what came of the calls.
    """

    shop: Shop

    def __init__(self, calls: Calls = TWO, run: str = "r-1") -> None: ...

    def pause(self) -> Self: ...

    def restarted(self) -> Self: ...

    def question(self) -> Any: ...

    def go_on(self, approval: Approval, site: Site | None = None) -> str: ...

    def report(self, client: Client, approval: Approval) -> None: ...
