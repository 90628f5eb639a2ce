"""Calls of tools that wait in another library, as the items of an approval. A bridge names
the calls; this asks about them, and gives back what people signed. Loads no Django.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from orchestrator.client.approval import Approval, Item
from orchestrator.client.flows import Question
from orchestrator.engine.frozen import frozen

SETTLED = ("approved", "rejected", "partial")
"""The states of an approval in which each item has a verdict that counts."""
DONE_BEFORE = (
    "This was done before a restart, and is not done again. The result is lost."
)
"""The reason that a model reads."""
_LONGEST_TITLE = 500
_LONGEST_RUN = 100
"""The most characters of the name of a run that its keys show."""


class NotSigned(Exception):
    """People did not sign what waits here. Ask them about it, or wait for them."""


@frozen
class ToolCall:
    """A call that waits. `arguments` are JSON; `schema` is the JSON Schema that edits of
    them must fit, where the library names one.
    """

    id: str
    tool: str
    arguments: Any
    schema: Mapping[str, Any] | None = None


def require_free(policy: Mapping[str, Any]) -> None:
    """Raise `TypeError` for what the calls that wait say themselves."""
    for name in ("items", "key"):
        if name in policy:
            raise TypeError(f"{name} is made of the calls that wait: leave it out")


def key_of(library: str, run: str, calls: Sequence[ToolCall]) -> str:
    """Return the key of the approval of these calls: the same after a retry or restart,
    and that of no other calls.
    """
    names = json.dumps([library, run, sorted(call.id for call in calls)])
    digest = hashlib.sha256(names.encode()).hexdigest()[:32]
    readable = re.sub(r"[^\w.-]", "_", run)[:_LONGEST_RUN]
    return f"{library}-{readable}-{digest}"


def question_of(
    library: str,
    run: str,
    calls: Sequence[ToolCall],
    *,
    title: str = "",
    schemas: Mapping[str, Mapping[str, Any]] | None = None,
    effects: Mapping[str, str] | None = None,
    **policy: Any,
) -> Question:
    """Return what `Client.ask` asks about these calls, one item for each. `schemas` and
    `effects` are those of tools, by name, where the library names no schema and the effect
    is not external; `policy` is the rest of the question, such as its `reviewers`. Raises
    `ValueError` where nothing waits, and `TypeError` for a policy that has a key or items.
    """
    require_free(policy)
    if not calls:
        raise ValueError(f"run {run} waits for nobody")
    items = []
    for call in calls:
        item = {"id": call.id, "label": call.tool, "value": call.arguments}
        item["effect"] = (effects or {}).get(call.tool, "external")
        schema = call.schema or (schemas or {}).get(call.tool)
        if schema is not None:
            item["schema"] = schema
        items.append(item)
    tools = ", ".join(sorted({call.tool for call in calls}))
    question: Any = {
        "title": title or f"{run}: {tools}"[:_LONGEST_TITLE],
        "items": items,
    }
    question["key"] = key_of(library, run, calls)
    return cast(Question, policy | question)


def signed_items(
    library: str, run: str, calls: Sequence[ToolCall], approval: Approval
) -> list[Item]:
    """Return the items of these calls, in their order; each has a verdict. A call that
    was reported as done comes back as rejected, since its signature is used up. Raises
    `NotSigned` where people were asked about anything else or by another account, or
    have not decided.
    """
    if approval.key != key_of(library, run, calls):
        raise NotSigned(
            f"approval {approval.key} is not about what run {run} waits for"
        )
    if not approval.raw["is_own"]:
        raise NotSigned(f"another account asked approval {approval.key}")
    if approval.state not in SETTLED:
        raise NotSigned(f"approval {approval.key} is {approval.state}, not decided")
    items = []
    for call in calls:
        item = approval.item(call.id)
        proposed = (item.label, _canonical(item.proposed))
        if proposed != (call.tool, _canonical(call.arguments)):
            raise NotSigned(
                f"call {call.id} of {call.tool} is not the one that was shown"
            )
        if reported_result(approval, call.id) == "done":
            item = replace(item, verdict="rejected", edited=False, reason=DONE_BEFORE)
        items.append(item)
    return items


def reported_result(approval: Approval, id: str) -> str:
    """Return the result that was reported of an item; empty if none was."""
    for row in approval.raw["items"]:
        if row["id"] == id and row.get("outcome"):
            return str(row["outcome"]["result"])
    return ""


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
