"""The channels of a state as lines of the form: name, short value, and the fields that
they unfold to. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from approvals.forms import controls
from approvals.forms.controls import Control
from orchestrator.travel.departure import Departure, State
from orchestrator.views.go_on.patch_form import PatchForm
from orchestrator.views.go_on.value_texts import summary, type_of

OPENED_BY_SEARCH = 3
"""The most channels that a search opens; if it finds more, it only lists their lines.
"""


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """One channel. `control` is None if its value is too large to be typed over; it
    then has its `size` in bytes.

    `is_open`: its fields are shown. `is_left_out`: a search found nothing in it.
    """

    name: str
    label: str
    text: str = ""
    control: Control | None = None
    size: int = 0
    is_changed: bool = False
    is_open: bool = False
    is_left_out: bool = False


def channel_lines(
    point: Departure,
    form: PatchForm,
    after: State,
    *,
    faulty: Collection[str],
    hits: Collection[str],
    searched: bool,
) -> list[ChannelLine]:
    """Return a line for each channel, those that changed or are `faulty` on top and
    open. `after` is the state with the valid part of the patch; `hits` are the channels
    in which a word was found, if one is `searched`.
    """
    changed = _changed_channels(form)
    open_by_search = hits if len(hits) <= OPENED_BY_SEARCH else ()
    sizes = {folded.path: folded.size for folded in form.folded}
    lines: list[ChannelLine] = []
    for name, channel in point.graph.channels.items():
        matters = name in changed or name in faulty
        value = after[channel.partition].get(name, channel.default)
        size = sizes.get(f"{channel.partition}.{name}", 0)
        lines.append(
            ChannelLine(
                name,
                controls.humanise(name),
                # A value too large for a control is too large for a summary.
                text="" if size else summary(value, type_of(channel)),
                control=form.drawn.get(name),
                size=size,
                is_changed=matters,
                is_open=matters or name in open_by_search,
                is_left_out=searched and not matters and name not in hits,
            )
        )
    return sorted(lines, key=lambda line: not line.is_changed)


def _changed_channels(form: PatchForm) -> set[str]:
    """Return the channels that a patch names, whichever way it was typed."""
    names: set[str] = set()
    for change in form.patch.values():
        # A merge patch names them as keys, operations at the start of their paths.
        if isinstance(change, dict):
            names.update(map(str, change))
        elif isinstance(change, list):
            for operation in change:
                names.update(_channel_of(operation))
    return names


def _channel_of(operation: Any) -> list[str]:
    """Return the channel that an operation changes; none for one that is not valid."""
    if not isinstance(operation, dict):
        return []
    path = str(operation.get("path", ""))
    return [path.split("/")[1]] if path.startswith("/") else []
