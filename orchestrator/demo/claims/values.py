"""The parts of a claim as values, for claim files, channels and calls to the payment
endpoint.

The graph, the assessment and the endpoint use them. Money is a Decimal with two places;
nothing here reads or writes.
"""

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Money = Annotated[
    Decimal,
    Field(ge=0, max_digits=12, decimal_places=2, json_schema_extra={"currency": "EUR"}),
]
Paid = Annotated[
    Decimal,
    Field(gt=0, max_digits=12, decimal_places=2, json_schema_extra={"currency": "EUR"}),
]
Share = Annotated[Decimal, Field(ge=0, le=1, max_digits=3, decimal_places=2)]
ClaimId = Annotated[
    str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
]
Account = Annotated[
    str,
    Field(
        pattern=r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$", description="An IBAN without blanks"
    ),
]
Address = Annotated[str, Field(max_length=254, pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]


class Strict(BaseModel):
    """Unknown fields are refused: a misspelt one in an edit or a file must not vanish."""

    model_config = ConfigDict(extra="forbid")


class Damage(Strict):
    """One damaged thing and what its repair or replacement is estimated at."""

    item: str
    estimate: Money


class Policy(Strict):
    """The cover of the policyholder. Both dates are within it."""

    number: str
    since: date
    until: date
    account: Account
    excess: Money
    limit: Money


class ClaimFile(Strict):
    """A claim as the first notice of loss left it. `photos_on_request` arrive only once
    they are requested.
    """

    claim_id: ClaimId
    policyholder: str
    email: Address
    account: Account
    event: str
    happened_on: date
    reported_on: date
    policy: Policy
    damages: list[Damage]
    photos: list[str] = []
    photos_on_request: list[str] = []
    earlier_claims: int = Field(default=0, ge=0)
    reserve: Money = Decimal("0.00")


class Assessment(Strict):
    """The worth of the damage under the policy."""

    damage: Money
    excess: Money
    payable: Money
    photos: int
    confidence: Share


class Screening(Strict):
    """How likely the claim is not what it says: 0 is harmless, 1 is certain."""

    score: Share
    reasons: list[str] = []


class Payout(Strict):
    """A payment to be made."""

    payee: str = Field(min_length=1, max_length=200)
    account: Account
    amount: Paid
    currency: Literal["EUR"] = "EUR"
    reference: str = Field(min_length=1, max_length=140)


class Letter(Strict):
    """A letter to be sent."""

    to: Address
    subject: str = Field(min_length=1, max_length=200, pattern=r"^[^\r\n]+$")
    body: str = Field(min_length=1)


class CaseUpdate(Strict):
    """The entry of the claim in the register."""

    status: Literal["settled", "partly settled", "open"]
    note: str = ""


class ReserveRelease(Strict):
    """Money that was put aside for the claim and is no longer needed."""

    amount: Paid


class PaymentOrder(Payout):
    """The body of a call to the payment endpoint."""

    claim_id: ClaimId


class PaymentReceipt(Strict):
    """The answer of the payment endpoint."""

    payment: int
    status: Literal["accepted"]
    amount: Paid
    currency: str
