"""Aliases of checkpoints: `<key>:initial`, `<key>:step-<n>`, `<key>:line-<l>:step-<n>`,
`<key>:at-<seq>`. Pure.
"""

import re
from dataclasses import dataclass

# Nine digits at most, so that a number fits into the column that it is compared with.
_ALIAS = re.compile(
    r"(?P<key>[^/:\x00\ud800-\udfff]{1,200}):(?:(?P<initial>initial)|at-(?P<seq>\d{1,9})"
    r"|(?:line-(?P<line>\d{1,9}):)?step-(?P<step>\d{1,9}))"
)


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias as its parts: the key of a run, and either a seq, or a superstep of a
    line (None: the current one).
    """

    key: str
    seq: int | None = None
    superstep: int | None = None
    line: int | None = None


def parsed(text: str) -> Alias | None:
    """Return the alias that a text is; None for any other text."""
    match = _ALIAS.fullmatch(text)
    if match is None:
        return None
    key = match["key"]
    if match["initial"]:
        return Alias(key, seq=0)
    if match["seq"]:
        return Alias(key, seq=int(match["seq"]))
    # The last form of the three, in which the line may be missing.
    line = None
    if match["line"]:
        line = int(match["line"])
    return Alias(key, superstep=int(match["step"]), line=line)
