"""The address of the page that compares runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from orchestrator.views.compare.tabs import TABS


@dataclass(frozen=True, slots=True)
class Address:
    """The page's address: the runs and checkpoints, the tab, and whether equal values
    are shown.
    """

    query: dict[str, str]
    tab: str
    everything: bool

    def to(self, **changed: str) -> str:
        """Return the address with some parts changed; empty ones are left out."""
        parts = {
            "tab": "" if self.tab == "state" else self.tab,
            "all": "1" if self.everything else "",
            **changed,
        }
        filled = {name: text for name, text in parts.items() if text}
        return compare_url({**self.query, **filled})


def address_of(request: HttpRequest, here: Mapping[str, str]) -> Address:
    query = dict(here)
    for name in ("at", "with_at"):
        if request.GET.get(name):
            query[name] = request.GET[name]
    tab = request.GET.get("tab", "")
    if tab not in TABS:
        tab = "state"
    return Address(query, tab, everything=request.GET.get("all") == "1")


def compare_url(query: Mapping[str, str]) -> str:
    """Return the address that compares the runs, at the checkpoints, that it names."""
    return f"{reverse('compare')}?{urlencode(query)}"
