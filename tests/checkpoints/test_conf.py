"""The COUNTERSIGN settings: typed, and refused by name."""

from base64 import b64encode
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from checkpoints.conf import bundle_seed, conf, trusted_keys
from orchestrator.checks import check_settings


def test_what_is_not_given_has_its_default(settings: Any) -> None:
    settings.COUNTERSIGN = {}
    assert conf().workers == 2
    assert conf().lease_seconds == 15.0
    assert conf().direct_statements is True


@pytest.mark.parametrize("switch", [True, False])
def test_a_switch_is_true_or_false(switch: bool, settings: Any) -> None:
    settings.COUNTERSIGN = {"DIRECT_STATEMENTS": switch}
    assert conf().direct_statements is switch


@pytest.mark.parametrize("setting", [None, 0, 1, "off", "False", [], {}])
def test_what_is_neither_true_nor_false_is_no_switch(
    setting: Any, settings: Any
) -> None:
    settings.COUNTERSIGN = {"DIRECT_STATEMENTS": setting}
    with pytest.raises(
        ImproperlyConfigured,
        match=r"COUNTERSIGN\['DIRECT_STATEMENTS'\] must be true or false, not ",
    ):
        conf()


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("WORKERS", True),
        ("WORKERS", 2.0),
        ("LEASE_SECONDS", True),
        ("LEASE_SECONDS", "15"),
    ],
)
def test_a_number_is_no_switch_and_no_text(
    name: str, setting: Any, settings: Any
) -> None:
    settings.COUNTERSIGN = {name: setting}
    with pytest.raises(
        ImproperlyConfigured, match=f"{name}.* must be a .*number .*, not "
    ):
        conf()


@pytest.mark.parametrize(
    "key",
    [bytes(range(32)), b64encode(bytes(range(32))).decode(), bytes(range(32)).hex()],
)
def test_keys_of_bundles_are_bytes_or_base64_or_hexadecimal(
    key: Any, settings: Any
) -> None:
    settings.COUNTERSIGN = {"BUNDLE_KEY": key, "TRUSTED_KEYS": {"north": key}}
    assert bundle_seed() == bytes(range(32))
    assert trusted_keys() == {"north": bytes(range(32))}


def test_without_a_key_for_bundles_one_is_made_from_the_secret_key(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {}
    before = bundle_seed()
    settings.SECRET_KEY = "another"
    assert len(before) == 32
    assert bundle_seed() != before
    assert trusted_keys() == {}


@pytest.mark.parametrize("key", [b"short", "nonsense!", "00" * 31, b"x" * 33])
@pytest.mark.parametrize("name", ["BUNDLE_KEY", "TRUSTED_KEYS"])
def test_what_is_no_key_of_bundles_is_named_at_start_up(
    name: str, key: Any, settings: Any
) -> None:
    settings.COUNTERSIGN = {name: key if name == "BUNDLE_KEY" else {"north": key}}
    [error] = check_settings(None)
    assert error.id == "orchestrator.E001"
    assert name in error.msg


@pytest.mark.parametrize("key", ["01" + "00" * 31, "ee" + "ff" * 31])
def test_a_key_with_which_anybody_signs_is_never_trusted(
    key: str, settings: Any
) -> None:
    settings.COUNTERSIGN = {"TRUSTED_KEYS": {"north": key}}
    [error] = check_settings(None)
    assert error.id == "orchestrator.E001"
    assert "'north'" in error.msg
    assert "anybody can sign" in error.msg
