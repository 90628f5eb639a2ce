"""The shared parts of the Django admin's pages: lookups that no database can compare, the
search by a run, and the number that confirms an act.
"""

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from checkpoints.models import Run

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
else:
    # They are generic only in their stubs.
    Base = admin.ModelAdmin
    ModelForm = forms.ModelForm


class CountField(forms.IntegerField):
    """A number that may be typed as pages show it, with separators."""

    widget = forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"})

    def to_python(self, value: Any) -> int | None:
        """Return the number without its separators."""
        text = str(value if value is not None else "")
        number: int | None = super().to_python(text.replace(",", "").replace(" ", ""))
        return number


def can_be_held(value: str) -> bool:
    """Return whether a database can compare a number, or each of several separated by
    commas. Django itself judges other text.
    """
    for part in value.split(","):
        try:
            # Some lookups by such a number raise an error instead of finding no row.
            if abs(int(part)) >= 2**63:
                return False
        except ValueError:
            continue
    return True


class RowsOfRuns(Base):
    """Rows that are found by the key or the id of their run."""

    search_run = ""
    """The field that names the run, if there is one."""

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse lookups by numbers that no column can hold."""
        return can_be_held(str(value)) and super().lookup_allowed(
            lookup, value, request
        )

    def get_search_fields(self, request: HttpRequest) -> Any:
        """Return the fields that a search looks into; a list that is searched by run
        alone has a search too.
        """
        return super().get_search_fields(request) or (
            (self.search_run,) if self.search_run else ()
        )

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> "tuple[QuerySet[Any], bool]":
        """Find rows by the whole key or id of their run, and by the other search
        fields. Only indexes are read.
        """
        # PostgreSQL refuses a NUL in any text.
        words = search_term.strip().replace("\x00", "")
        if not words or not self.search_run:
            return super().get_search_results(request, queryset, words)
        by_run = queryset.filter(**{f"{self.search_run}__in": _runs_named(words)})
        if not self.search_fields:
            return by_run, False
        others, is_joined = super().get_search_results(request, queryset, words)
        return by_run | others, is_joined


def _runs_named(words: str) -> "list[UUID]":
    """Return the id of the run with this key or id, in a list; empty for none."""
    try:
        return [UUID(words)]
    except ValueError:
        return list(Run.objects.filter(key=words).values_list("id", flat=True))
