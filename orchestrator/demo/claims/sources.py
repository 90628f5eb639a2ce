"""The source of a claim: an uploaded claim file, or only an amount. The graph's
reading node calls it.
"""

from datetime import date
from decimal import Decimal

from pydantic import ValidationError

from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.uploads import open_ref
from orchestrator.demo.claims.values import ClaimFile, Damage, Policy
from orchestrator.engine import FileRef

LARGEST = 1024 * 1024


class BrokenClaimFile(ValueError):
    """A claim file that cannot be used; the message says where it is wrong and what to
    do.
    """


def from_file(ref: FileRef, *, claim_id: str) -> ClaimFile:
    """Return the claim in an uploaded file. Raises `BrokenClaimFile` naming file, place
    and cure.
    """
    with open_ref(ref) as file:
        # One byte more than is allowed is enough to refuse a larger file.
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BrokenClaimFile(
            f"{ref.name} is larger than 1 MiB: a claim file is a short JSON document"
        )
    claim = _parsed(content, name=ref.name)
    if claim.claim_id != claim_id:
        what = f"{ref.name} is the file of {claim.claim_id}, not of {claim_id}"
        raise BrokenClaimFile(f"{what}: start with the other file")
    return claim


def _parsed(content: bytes, *, name: str) -> ClaimFile:
    try:
        return ClaimFile.model_validate(parse_strict(content))
    except NotStrict as error:
        raise BrokenClaimFile(
            f"{name} is not JSON ({error}): export the claim again"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise BrokenClaimFile(
            f"{name}: {where}: {first['msg']}: complete the claim and export it again"
        ) from None


def without_file(claim_id: str, *, amount: Decimal) -> ClaimFile:
    """An example policyholder's claim over an amount, for trying things out without any
    file.
    """
    account = "DE89370400440532013000"
    policy = Policy(
        number=f"P-{claim_id}"[:40],
        since=date(2024, 1, 1),
        until=date(2030, 12, 31),
        account=account,
        excess=Decimal("0.00"),
        limit=Decimal("1000000.00"),
    )
    return ClaimFile(
        claim_id=claim_id,
        policyholder=f"Policyholder of {claim_id}",
        email="policyholder@example.com",
        account=account,
        event="as reported",
        happened_on=date(2026, 11, 3),
        reported_on=date(2026, 11, 4),
        policy=policy,
        damages=[Damage(item="as claimed", estimate=amount)],
        photos=["front.jpg", "detail.jpg"],
        reserve=amount,
    )
