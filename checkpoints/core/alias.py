"""Aliases of checkpoints: `<key>:initial`, `<key>:step-<n>`, `<key>:line-<l>:step-<n>`, `<key>:at-<seq>`. Pure."""

import re
from dataclasses import dataclass

_ALIAS = re.compile(
    r"(?P<key>[^/:\x00\ud800-\udfff]{1,200}):(?:(?P<initial>initial)|at-(?P<seq>\d{1,9})"
    r"|(?:line-(?P<line>\d{1,9}):)?step-(?P<step>\d{1,9}))"
)


@dataclass(frozen=True, slots=True)
class Alias:
    """What an alias says: a run's key, and either a seq, or a superstep of a line (None: the current one)."""

    key: str
    seq: int | None = None
    superstep: int | None = None
    line: int | None = None


def parsed(text: str) -> Alias | None:
    """The alias, or None for any other text."""
    match = _ALIAS.fullmatch(text)
    if match is None:
        return None
    if match["step"]:
        return Alias(match["key"], superstep=int(match["step"]), line=int(match["line"]) if match["line"] else None)
    return Alias(match["key"], seq=0 if match["initial"] else int(match["seq"]))
