"""The proposal of a call as a value: the arguments that people approve before a node
runs. Pure.

It is held as the one write of a channel `$call`, whose type is the node's `args`. The
channel is no part of a state: after an approval the node runs with the value, which is
not reduced.
"""

from functools import lru_cache
from typing import Any

from pydantic import BaseModel, create_model

from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.reducer import Merge
from orchestrator.engine.graphs.state import holds_sets, schema_of

CALL = "$call"
"""The channel of a proposed call. No field of a state has this name."""

ANY_CALL = Channel(
    name=CALL,
    model=create_model("Call", **{CALL: (Any, None)}),  # type: ignore[call-overload]
    reducer=Merge,
    artifact=False,
    default=None,
    schema={},
)
"""The channel of a call whose node does not matter: it binds no value by itself."""


AUTHORITY = "$authority"
"""The channel of what a node acts on, where its signatures no longer count and people
are asked again. No field of a state has this name.
"""


def is_call(channel: str) -> bool:
    """Return whether an approved write to this channel only allows a node to run, and
    changes no state: a proposed call, or the authority on which a node acts.
    """
    return channel in (CALL, AUTHORITY)


def is_authority(channel: str) -> bool:
    """Return whether a write to this channel is what a node acts on."""
    return channel == AUTHORITY


# Building a model takes pydantic long.
@lru_cache(maxsize=1024)
def call_channel(args: type[BaseModel]) -> Channel:
    """Return the channel of the calls of a node with these arguments. Raises
    `InvalidValue` if a type of the model has no JSON Schema.
    """
    model = create_model("Call", **{CALL: (args, ...)})  # type: ignore[call-overload]
    schema = schema_of(model)
    return Channel(
        name=CALL,
        model=model,
        reducer=Merge,
        artifact=False,
        default=None,
        schema=schema["properties"][CALL],
        sets=holds_sets(schema),
    )
