"""The verbs that steer a run, each declared once.

`orchestrator.api.verbs` makes the endpoint and the body of each from this table, and
`orchestrator.management.verb_command` its command and options. A new verb is an entry
of `VERBS`, and a module in `orchestrator/management/commands` that names the entry.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Literal

from checkpoints.models import Run
from checkpoints.models.run_line import Travel
from orchestrator.runs.verbs import cancel, resume, settle
from orchestrator.travel.verbs import fork, replay, rewind

LONGEST_NAME = 200
LONGEST_REASON = 10_000


class Kind(Enum):
    """The type of an argument."""

    TEXT = auto()
    FLAG = auto()
    """Its option states the opposite of its default."""
    NODES = auto()
    OBJECT = auto()
    """A JSON object; its option names a file."""
    JSON = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a verb: a field of the endpoint's body, and an option of the
    command. If its `default` is None, the body may hold null; if it is an empty text,
    the body may hold an empty text.
    """

    name: str
    kind: Kind
    required: bool = False
    default: Any = None
    longest: int | None = None
    help: str = ""

    option: str = ""
    """Positional if it has no dashes; empty if the command declares it itself."""
    option_help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb, which `function` carries out with the id of what the address names."""

    name: str
    acts_on: Literal["run", "checkpoint"]
    function: Callable[..., Run]
    arguments: tuple[Argument, ...]
    endpoint_help: str
    body_help: str

    command_help: str = ""
    """Empty if the command is not made from this table."""
    travel: Travel | None = None
    """The kind of its plan; None if it has none."""
    right: str = "steer_run"
    scope: str = "steer"
    creates_run: bool = False


# {partition: merge patch or list of operations}
PATCH = Argument(
    name="patch",
    kind=Kind.OBJECT,
    option="--patch",
    option_help="JSON: {partition: merge patch or list of operations}; "
    "- reads standard input",
)
# The nodes that may do again what they did already.
ALLOW_EFFECTS = Argument(
    name="allow_effects",
    kind=Kind.NODES,
    default=list,
    option="--allow",
    option_help="may do again what has happened already",
)
REASON = Argument(
    name="reason",
    kind=Kind.TEXT,
    default="",
    longest=LONGEST_REASON,
    option="--reason",
    option_help="why; stands in its log",
)
REQUIRED_REASON = replace(REASON, required=True, default=None)
# {node: {channel: value}}
ANSWERS = Argument(
    name="answers",
    kind=Kind.OBJECT,
    option="--answers",
    option_help="JSON: {node: {channel: value}}, decisions of --by on what waits there",
)

FORK = Verb(
    name="fork",
    acts_on="checkpoint",
    function=fork,
    travel=Travel.FORK,
    creates_run=True,
    endpoint_help="A new run from this checkpoint; its origin stays as it is.",
    body_help="A fork: without `start` it is paused until it is resumed.",
    command_help="Start a new run from a checkpoint, its state patched. "
    "The run that it comes from stays as it is.",
    arguments=(
        PATCH,
        ALLOW_EFFECTS,
        REASON,
        ANSWERS,
        Argument(
            name="key",
            kind=Kind.TEXT,
            longest=LONGEST_NAME,
            option="--key",
            option_help="the new run's key; without it, one made from the origin's",
        ),
        Argument(
            name="start",
            kind=Kind.FLAG,
            default=True,
            option="--paused",
            option_help="it waits until it is resumed",
        ),
    ),
)
REPLAY = Verb(
    name="replay",
    acts_on="checkpoint",
    function=replay,
    travel=Travel.REPLAY,
    creates_run=True,
    endpoint_help="A new run from this checkpoint that acts on nothing and asks "
    "nobody: recorded outcomes are taken.",
    body_help="Why a run is replayed.",
    command_help="Make a new run from a checkpoint that acts on nothing and asks "
    "nobody; --report tells what it came to.",
    arguments=(REASON,),
)
REWIND = Verb(
    name="rewind",
    acts_on="run",
    function=rewind,
    travel=Travel.REWIND,
    endpoint_help="Rewinds the run: it continues on a new line from one of its older "
    "checkpoints.",
    body_help="A rewind, and why.",
    command_help="Let a run go on from an older checkpoint of its own. "
    "What came after stays readable; nothing is undone.",
    arguments=(
        Argument(
            name="checkpoint",
            kind=Kind.TEXT,
            required=True,
            longest=LONGEST_NAME * 2,
            help="Id or alias, of this run.",
            option="checkpoint",
            option_help="id or alias, such as CLM-1:step-4",
        ),
        PATCH,
        ALLOW_EFFECTS,
        REQUIRED_REASON,
        ANSWERS,
    ),
)
RESUME = Verb(
    name="resume",
    acts_on="run",
    function=resume,
    travel=Travel.RESUME,
    endpoint_help="Queue a failed run again, or one that stopped before an effect that "
    "needs a yes; with a patch, on a new line.",
    body_help="A resume; with a patch it goes on from the newest checkpoint on a new "
    "line.",
    command_help="Queue a failed run again, or one that stopped before an effect; "
    "only tasks without a result run. "
    "A run that waits for people goes on when they sign.",
    arguments=(PATCH, ALLOW_EFFECTS, REASON),
)
CANCEL = Verb(
    name="cancel",
    acts_on="run",
    function=cancel,
    endpoint_help="Cancel a run: at once, or after the superstep in hand.",
    body_help="Why a run is cancelled.",
    command_help="Cancel a run: at once, or where a worker has it, after the superstep "
    "in hand. What it asks is withdrawn.",
    arguments=(REASON,),
)
# Its command takes exactly one of --happened and --did-not, so it declares its options
# itself.
SETTLE = Verb(
    name="settle",
    acts_on="run",
    function=settle,
    right="settle_task",
    endpoint_help="Say whether an effect with an unknown outcome happened.",
    body_help="The body that settles an unknown outcome.",
    arguments=(
        Argument(name="task", kind=Kind.TEXT, required=True, help="node:visit:index"),
        Argument(name="happened", kind=Kind.FLAG, required=True),
        Argument(
            name="output",
            kind=Kind.JSON,
            help="What the node would have returned.",
        ),
        REQUIRED_REASON,
        Argument(name="accept_risk", kind=Kind.FLAG, default=False),
    ),
)

VERBS = (FORK, REPLAY, REWIND, RESUME, CANCEL, SETTLE)
