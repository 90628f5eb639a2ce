"""A call of a function that people sign: its arguments are the one item of an approval,
and what runs is the value that came back. What the bridges to job runners share.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from inspect import Parameter, signature
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter, validate_call
from pydantic_core import to_jsonable_python

from orchestrator.client import (
    ApiError,
    Approval,
    Client,
    ServerFailed,
    Throttled,
    Unreachable,
)
from orchestrator.engine.errors import NotDone

CALL = "call"
"""The id of the item."""
AWAY = (Unreachable, ServerFailed, Throttled)
"""The errors after which the same call is worth another try, later."""
_LONGEST_KEY = 200
log = logging.getLogger(__name__)


class Rejected(Exception):
    """People did not approve the call; the text is their reason, or the state in which
    the approval ended.
    """


def key_of(library: str, *ids: str) -> str:
    """Return the key of an approval from the ids by which a library knows a call again."""
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
    outcomes = [row.get("outcome") for row in approval.raw["items"]]
    return any(outcome and outcome["result"] == "done" for outcome in outcomes)


class SignedCall:
    """A function whose calls people sign. `title`, `facts` and the further fields of a
    question may be functions of the arguments, which are as JSON then.
    """

    def __init__(
        self,
        client: Client,
        function: Callable[..., Any],
        *,
        reviewers: Sequence[str],
        title: str | Callable[[Mapping[str, Any]], str] = "",
        effect: str = "external",
        reports: bool = True,
        **fields: Any,
    ) -> None:
        self.client = client
        self.function = function
        self.name = function.__name__
        self.address = f"{function.__module__}.{function.__qualname__}"
        _require_names(function)
        self.reports = reports
        self._effect = effect
        signature_type: Any = function
        self._schema = TypeAdapter(signature_type).json_schema()
        self._fields = {"title": title or self.name, "reviewers": reviewers, **fields}

    def ask(self, key: str, *args: Any, **kwargs: Any) -> Approval:
        """Ask people about these arguments, or return what they were asked already.
        Raises `KeyConflict` if that was another question.
        """
        bound = signature(self.function).bind(*args, **kwargs)
        # A default may change with a deployment, what was signed may not.
        bound.apply_defaults()
        arguments = to_jsonable_python(bound.arguments)
        item = {
            "id": CALL,
            "label": self.name,
            "value": arguments,
            "schema": self._schema,
            "effect": self._effect,
        }
        return self.client.ask(key=key, items=[item], **self._fields_of(arguments))

    def require_asked(self, approval: Approval) -> None:
        """Raise `Rejected` unless an approval is about this function and asks whom it
        asks: whoever may ask can ask others under the same key.
        """
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

    def run(
        self, approval_id: str, arguments: Mapping[str, Any], *, hash: str | None = None
    ) -> Any:
        """Call the function with the arguments that were signed in an approval. With the
        `hash` of what was signed, no outcome of it is reported of anything else.
        """
        try:
            result = validate_call(self.function)(**arguments)
        except NotDone as error:
            self._report(approval_id, hash, "failed", str(error))
            raise
        except Exception as error:
            self._report(approval_id, hash, "unknown", type(error).__name__)
            raise
        self._report(approval_id, hash, "done")
        return result

    def _report(
        self, approval_id: str, hash: str | None, result: str, detail: str = ""
    ) -> None:
        """Report what came of the call. A report that fails is logged, for it must not
        make the call run again.
        """
        if not self.reports:
            return
        try:
            hashes = {CALL: hash} if hash else None
            self.client.report(approval_id, {CALL: (result, detail)}, hashes=hashes)
        except ApiError as error:
            log.warning(
                "approval %s: its outcome is not reported: %s", approval_id, error
            )


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
