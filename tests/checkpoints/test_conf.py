"""The COUNTERSIGN settings: typed, and refused by name."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from checkpoints.conf import conf


def test_what_is_not_given_has_its_default(settings: Any) -> None:
    settings.COUNTERSIGN = {}
    assert (conf().workers, conf().lease_seconds, conf().direct_statements) == (2, 15.0, True)


@pytest.mark.parametrize("given", [True, False])
def test_a_switch_is_true_or_false(given: bool, settings: Any) -> None:
    settings.COUNTERSIGN = {"DIRECT_STATEMENTS": given}
    assert conf().direct_statements is given


@pytest.mark.parametrize("given", [None, 0, 1, "off", "False", [], {}])
def test_what_is_neither_true_nor_false_is_no_switch(given: Any, settings: Any) -> None:
    settings.COUNTERSIGN = {"DIRECT_STATEMENTS": given}
    with pytest.raises(ImproperlyConfigured, match=r"COUNTERSIGN\['DIRECT_STATEMENTS'\] has a wrong type"):
        conf()


@pytest.mark.parametrize(
    ("name", "given"), [("WORKERS", True), ("WORKERS", 2.0), ("LEASE_SECONDS", True), ("LEASE_SECONDS", "15")]
)
def test_a_number_is_no_switch_and_no_text(name: str, given: Any, settings: Any) -> None:
    settings.COUNTERSIGN = {name: given}
    with pytest.raises(ImproperlyConfigured, match=f"{name}.* has a wrong type"):
        conf()
