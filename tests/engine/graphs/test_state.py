"""Channels are read from a state model once, with every fault of it."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, model_validator

from orchestrator.engine import Append, Artifact, Merge, Sum, Union
from orchestrator.engine.graphs.state import channels_of, fresh, viewer


class Good(BaseModel):
    notes: Annotated[list[str], Append] = ["first"]
    total: Annotated[int, Sum] = 3
    letter: Annotated[str, Artifact] = "Dear"
    risk: int = None  # type: ignore[assignment]


def test_each_field_is_a_channel_with_its_reducer_partition_and_default() -> None:
    channels, faults = channels_of(Good)
    assert faults == []
    assert [(name, one.partition, one.default) for name, one in channels.items()] == [
        ("notes", "scratch", ["first"]),
        ("total", "scratch", 3),
        ("letter", "artifacts", "Dear"),
        ("risk", "scratch", None),
    ]
    assert fresh(channels, Good) == {
        "scratch": {"notes": ["first"], "total": 3, "risk": None},
        "artifacts": {"letter": "Dear"},
    }


def bad(**fields: Any) -> type[BaseModel]:
    return type(
        "Bad",
        (BaseModel,),
        {
            "__annotations__": {k: v[0] for k, v in fields.items()},
            **{k: v[1] for k, v in fields.items() if len(v) > 1},
        },
    )


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"amount": (int,)}, "state field amount has no default"),
        ({"input": (int, 1)}, "has the name of a partition"),
        ({"notes": (Annotated[str, Append], "")}, "Append needs a list"),
        ({"facts": (Annotated[list[int], Merge], [])}, "Merge needs a dict"),
        ({"tags": (Annotated[set[str], Append], set())}, "use Union"),
        (
            {"tags": (Annotated[list[str], Append, Union], [])},
            "names more than one reducer",
        ),
        ({"amount": (int, "three")}, "its default does not fit its type"),
    ],
)
def test_a_field_that_cannot_be_a_channel_is_a_fault_by_name(
    fields: dict[str, Any], fault: str
) -> None:
    channels, faults = channels_of(bad(**fields))
    assert any(fault in one for one in faults), faults


def test_a_validator_over_the_whole_model_is_a_fault() -> None:
    class Checked(BaseModel):
        a: int = 0

        @model_validator(mode="after")
        def check(self) -> "Checked":
            return self

    assert "model validator" in channels_of(Checked)[1][0]


def test_a_default_that_raises_is_a_fault_and_no_crash() -> None:
    from pydantic import Field

    def broken() -> int:
        raise RuntimeError("no default today")

    class Broken(BaseModel):
        a: int = Field(default_factory=broken)

    assert "no default today" in channels_of(Broken)[1][0]


def test_a_node_that_names_what_it_reads_sees_no_other_channel() -> None:
    channels, _ = channels_of(Good)
    seen: Any = viewer(channels, Good, fresh(channels, Good), reads=("total",))()
    assert seen.total == 3
    with pytest.raises(AttributeError):
        _ = seen.letter
