"""What stands in the place of what was erased. Pure; docs/erasure.md tells the form to everybody who reads rows.

In the place of a value: `{"erased": true, "record": "<id of the erasure record>"}`. Where the form of a row wants a
text, as in a title or the message of an error: `TEXT`.
"""

from typing import Any

TEXT = "[erased]"


def tombstone(record: Any) -> dict[str, Any]:
    """What stands in the place of a value that this record tells of."""
    return {"erased": True, "record": str(record)}


def is_tombstone(value: Any) -> bool:
    """Whether this stands in the place of an erased value."""
    return isinstance(value, dict) and value.keys() == {"erased", "record"} and value["erased"] is True


def agrees(told: Any, has: Any) -> bool:
    """Whether a row has what a line of the log told of it: the same, or nothing any more, where that was erased."""
    return told == has or (is_tombstone(told) and not has)
