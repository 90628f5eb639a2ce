"""What a browser would post from a review page."""

from typing import Any


def form_of(page: Any) -> dict[str, Any]:
    """Return what the page's form would post, before anything is chosen."""
    review = page.context["page"]
    posted: dict[str, Any] = {
        "key": review.key,
        "write": [slip.write for slip in review.cells],
    }
    for slip in review.cells:
        posted |= {f"h-{slip.write}": slip.hash, f"d-{slip.write}": slip.shape}
        for control in slip.control.walk():
            if control.kind not in ("group", "rows", "map", "bool"):
                posted[control.name] = "" if control.value is None else control.value
    return posted


def slip_of(page: Any, channel: str) -> Any:
    return next(slip for slip in page.context["page"].slips if slip.channel == channel)


def choose(page: Any, **verdicts: str) -> dict[str, Any]:
    """The form with a verdict for each named channel."""
    posted = form_of(page)
    for channel, verdict in verdicts.items():
        posted[f"v-{slip_of(page, channel).write}"] = verdict
        posted[f"r-{slip_of(page, channel).write}"] = "because"
    return posted
