"""A call of a function that people sign: its arguments are the one item of an approval,
and what runs is the value that came back. What the bridges to job runners share.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from hashlib import sha256
from inspect import Parameter, signature
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter, validate_call
from pydantic_core import to_jsonable_python

from orchestrator.bridges.reports import AWAY, DONE, Outcome, outcome_of, report
from orchestrator.bridges.tool_calls import reported_result, require_free
from orchestrator.client import Approval, Client
from orchestrator.engine.values import canonical

__all__ = [
    "AWAY",
    "CALL",
    "Rejected",
    "SignedCall",
    "is_done",
    "key_of",
    "signed_arguments",
]

CALL = "call"
"""The id of the item."""
_LONGEST_KEY = 200
_MOST_UNDELIVERED = 1000
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class Rejected(Exception):
    """People did not approve the call; the text is their reason, or the state in which
    the approval ended.
    """


def key_of(library: str, *ids: str) -> str:
    """Return the key of an approval from the ids with which a library recognizes a
    call.
    """
    key = ",".join((library, *(quote(id_, safe="") for id_ in ids)))
    if len(key) <= _LONGEST_KEY:
        return key
    return f"{library},{sha256(key.encode()).hexdigest()}"


def signed_arguments(approval: Approval) -> dict[str, Any]:
    """Return the arguments that people signed. Raises `Rejected` for any other end."""
    item = approval.item(CALL)
    if approval.state != "approved" or item.verdict != "approved":
        raise Rejected(item.reason or approval.state)
    arguments: dict[str, Any] = item.value
    return arguments


def is_done(approval: Approval) -> bool:
    """Return whether the call was reported as done, so that it must not run again."""
    return reported_result(approval, CALL) == "done"


class SignedCall:
    """A function whose calls people sign. `title`, `facts` and the further fields of a
    question may be functions of the arguments, which are as JSON then. Two calls of one
    function share no signature if they have names.
    """

    def __init__(
        self,
        client: Client,
        function: Callable[..., Any],
        *,
        reviewers: Sequence[str],
        name: str = "",
        title: str | Callable[[Mapping[str, Any]], str] = "",
        effect: str = "external",
        reports: bool = True,
        **fields: Any,
    ) -> None:
        _require_names(function)
        require_free(fields)
        self.client = client
        self.function = function
        self.name = name or function.__name__
        self.address = f"{function.__module__}.{function.__qualname__}"
        if name:
            self.address += f":{name}"
        self.reports = reports
        self._effect = effect
        signature_type: Any = function
        self._schema = TypeAdapter(signature_type).json_schema()
        self._undelivered: deque[tuple[Approval, Outcome]] = deque(
            maxlen=_MOST_UNDELIVERED
        )
        self._fields = {"title": title or self.name, "reviewers": reviewers, **fields}

    def ask(self, key: str, *args: Any, **kwargs: Any) -> Approval:
        """Ask people about these arguments, or return what they were asked already.
        Raises `KeyConflict` if that was another question, and `Rejected` if another
        account asked it.
        """
        bound = signature(self.function).bind(*args, **kwargs)
        # A default may change with a deployment, what was signed may not.
        bound.apply_defaults()
        arguments = _ordered(
            to_jsonable_python(bound.arguments),
            _ANYTHING.dump_python(bound.arguments, by_alias=True),
        )
        item = {
            "id": CALL,
            "label": self.name,
            "value": arguments,
            "schema": self._schema,
            "effect": self._effect,
        }
        approval = self.client.ask(key=key, items=[item], **self._fields_of(arguments))
        _require_own(approval)
        return approval

    def require_asked(self, approval: Approval) -> None:
        """Raise `Rejected` unless an approval is about this function, asks whom it asks,
        and was asked by the account of this client: whoever may ask can ask others, or
        under another title, with the same key.
        """
        _require_own(approval)
        item = approval.item(CALL)
        policy = self._fields_of(item.proposed)
        same = [
            item.label == self.name,
            set(approval.raw["reviewers"]) == set(policy["reviewers"]),
            approval.raw["quorum"] == policy.get("quorum", 1),
            approval.raw["four_eyes"] == policy.get("four_eyes", False),
        ]
        if not all(same):
            raise Rejected(f"approval {approval.id} was not asked of its reviewers")

    def _fields_of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        fields = {}
        for name, field in self._fields.items():
            fields[name] = field(arguments) if callable(field) else field
        return fields

    def run(self, approval: Approval) -> Any:
        """Call the function with the arguments that were signed, and report what came of
        it. Raises `Rejected`, also if the approval says that this was done.
        """
        arguments = signed_arguments(approval)
        if is_done(approval):
            raise Rejected("the call was done before, and its result was lost")
        try:
            result = validate_call(self.function)(**arguments)
        except Exception as error:
            # That this attempt did nothing proves nothing about an earlier one.
            if reported_result(approval, CALL) != "unknown":
                self._report(approval, outcome_of(error))
            raise
        self._report(approval, DONE)
        return result

    def _report(self, approval: Approval, outcome: Outcome) -> None:
        """Report what came of the call, and of earlier ones that the site, which was
        away, has not heard of.
        """
        if not self.reports:
            return
        if not report(self.client, approval, {CALL: outcome}):
            self._undelivered.append((approval, outcome))
            return
        # Another thread may deliver the same.
        with suppress(IndexError):
            while True:
                earlier, its = self._undelivered.popleft()
                if not report(self.client, earlier, {CALL: its}):
                    self._undelivered.appendleft((earlier, its))
                    return


def _require_own(approval: Approval) -> None:
    if not approval.raw["is_own"]:
        raise Rejected(f"another account asked approval {approval.id}")


def _ordered(shown: Any, value: Any) -> Any:
    """Return the JSON of a value with the members of its sets sorted: in another process
    they come in another order, and the same call would be another question.
    """
    if isinstance(shown, dict) and isinstance(value, Mapping):
        pairs = zip(shown.items(), value.values(), strict=False)
        return {name: _ordered(its, inner) for (name, its), inner in pairs}
    if isinstance(shown, list) and isinstance(value, Sequence | Set):
        members = [_ordered(*pair) for pair in zip(shown, value, strict=False)]
        if isinstance(value, Set):
            members.sort(key=canonical.encode)
        return members
    return shown


def _require_names(function: Callable[..., Any]) -> None:
    """Raise `TypeError` for a function that takes arguments without a name:
    what was signed could not be given to it as it was shown.
    """
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    for parameter in signature(function).parameters.values():
        if parameter.kind not in named:
            raise TypeError(
                f"{function.__qualname__} takes {parameter}: people sign arguments by "
                "name, so name each of them"
            )
