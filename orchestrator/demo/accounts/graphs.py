"""account_change: another account for the payments to a policyholder, signed by two
people, neither of whom started the run.

Who can lead payments elsewhere should not be able to do it alone, so the gate has four
eyes and a quorum of two. The starter is asked like the others, and may not sign.
"""

from typing import Annotated, Any

from django.core.mail import EmailMessage
from pydantic import BaseModel, Field

from orchestrator.demo.claims.values import Account, Address, ClaimId, Strict
from orchestrator.engine import (
    END,
    START,
    Append,
    Context,
    Fact,
    Gate,
    Graph,
    Show,
    Write,
)


class AccountChange(BaseModel):
    """The input of a run."""

    policy: ClaimId = Field(title="Policy", description="For example POL-2207")
    payee: str = Field(title="Payee", min_length=1, max_length=100)
    account: Account = Field(title="New account", description="An IBAN without blanks")
    email: Address = Field(
        title="E-mail", description="The policyholder hears of the change there"
    )


class PaidTo(Strict):
    """The account to which a policyholder is paid."""

    payee: str
    account: Account


class State(BaseModel):
    """The state of a change."""

    notes: Annotated[list[str], Append] = []
    paid_to: PaidTo | None = None
    letter_sent: str = ""


graph = Graph(
    "account_change",
    description="Changes the account of a policyholder once two people have signed it.",
    input=AccountChange,
    state=State,
    label="Account of {policy}",
    facts=[Fact("Policy", "input.policy", indexed=True)],
)


@graph.node(
    effect="human",
    gate=Gate(
        reviewers=["group:accounts"],
        four_eyes=True,
        quorum=2,
        title="Pay {input.policy} to another account?",
        facts=[
            Fact("Policy", "input.policy"),
            Fact("Payee", "input.payee"),
            Fact("Letter to", "input.email"),
        ],
        writes={
            "paid_to": Show(
                label="Pay {payee} to {account}",
                reversible="The account can be changed again; a payment to it cannot"
                " be taken back.",
            )
        },
    ),
)
def propose(state: Any, ctx: Context) -> Any:
    """Propose the new account, which two people sign."""
    new = PaidTo(payee=ctx.input.payee, account=ctx.input.account)
    return [Write("paid_to", new)]


@graph.node(
    effect="external",
    reads=["paid_to"],
    timeout=30,
    not_done=(ConnectionRefusedError,),
)
def write_to_policyholder(state: Any, ctx: Context) -> Any:
    """Write to the policyholder, who may not know of the change."""
    account = state.paid_to.account
    body = f"From now on we pay to {account}. If you did not ask for this, call us."
    EmailMessage(
        "Your account was changed", body, "claims@example.com", [ctx.input.email]
    ).send()
    return {"letter_sent": ctx.input.email, "notes": [f"now paid to {account}"]}


@graph.node()
def leave_as_it_is(state: Any, ctx: Context) -> Any:
    """Leave the account as it is."""
    return {"notes": ["the account stays as it is"]}


graph.edge(START, "propose")
graph.edge("propose", "write_to_policyholder", when=("approved", "partial"))
graph.edge("propose", "leave_as_it_is", when="rejected")
graph.edge("write_to_policyholder", END)
graph.edge("leave_as_it_is", END)
