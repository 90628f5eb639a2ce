"""The graph that the package itself brings: people decide on items that a caller names,
with no graph to write. `orchestrator.asking` starts runs of it.

Its structure is part of the promise: a run that waits for people when the package is
upgraded goes on with the same version.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from orchestrator.engine import END, START, Custom, Fact, Gate, Graph, Write, registry

NAME = registry.ASKING
"""Reserved: a graph of this name in another app is refused at start-up."""
REVIEW = "review"
"""The node whose gate asks about the items, in the order in which they were named."""


class NamedFact(BaseModel):
    """A figure worth showing beside the items."""

    label: str
    value: Any


class AskedItem(BaseModel):
    """A value that people decide on. `effect` is what acting on it does to the world,
    and `value_schema` what an edit of it must fit.
    """

    id: str
    value: Any
    label: str = ""
    value_schema: dict[str, Any] | None = None
    effect: str | None = None


class AskedApproval(BaseModel):
    """The question of a caller to people. A deadline is a moment, or seconds from the opening
    of the request.
    """

    title: str
    facts: list[NamedFact] = []
    items: list[AskedItem]
    reviewers: list[str]
    quorum: int = 1
    reject_quorum: int = 1
    four_eyes: bool = False
    deadline: datetime | None = None
    deadline_seconds: int | None = None
    on_deadline: Literal["reject", "fail"] = "reject"
    reports: bool = False


def label_of(item: Any) -> str:
    """Return what people are shown of an item beside its value, and sign: its label
    with its id, which identifies it to whoever asked.
    """
    return f"{item.label} ({item.id})" if item.label else item.id


def collect(old: Any, update: Any) -> Any:
    """Return the approved values with one more, whatever its type."""
    return [*old, update]


class Approved(BaseModel):
    """The values that people approved or edited, in the order of their items."""

    approved: Annotated[Any, Custom(collect, commutes=True)] = []


def terms_of(question: Any) -> Mapping[str, Any]:
    """Return what the gate asks for in this run."""
    deadline: Any = question.deadline
    if question.deadline_seconds is not None:
        deadline = timedelta(seconds=question.deadline_seconds)
    facts = []
    for number, fact in enumerate(question.facts):
        facts.append(Fact(fact.label, f"input.facts.{number}.value"))
    return {
        "reviewers": question.reviewers,
        "quorum": question.quorum,
        "reject_quorum": question.reject_quorum,
        "four_eyes": question.four_eyes,
        "deadline": deadline,
        "on_deadline": question.on_deadline,
        "facts": facts,
        "reports": question.reports,
    }


approval = Graph(
    NAME,
    version="1",
    input=AskedApproval,
    state=Approved,
    label="{title}",
)


@approval.node(
    REVIEW,
    effect="human",
    gate=Gate(terms=terms_of, title="{input.title}"),
)
def review(state: Any, ctx: Any) -> list[Write]:
    """Propose one write for each item."""
    writes = []
    for item in ctx.input.items:
        writes.append(
            Write(
                "approved",
                item.value,
                label=label_of(item),
                schema=item.value_schema,
                effect=item.effect,
            )
        )
    return writes


approval.edge(START, REVIEW)
approval.edge(REVIEW, END)
