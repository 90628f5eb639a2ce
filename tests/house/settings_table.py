"""The tables of docs/configuration.md, as the declarations of the settings have them."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from checkpoints.conf import Conf, Variables
from orchestrator.environment import Environment

IN_WORDS = {
    "alive_file": "none",
    "allowed_hosts": "loopback, none in production",
    "bundle_key": "one made from the secret key",
    "data_dir": "`var` in the project",
    "database_pool": "none",
    "database_url": "SQLite in the data folder",
    "environment": "the mode's name",
    "https": "on in production",
    "secret_key": "none in production",
    "signing_keys": "one made from the secret key",
    "static_dir": "`static` in the data folder",
}
"""Defaults that are more than a value, as the page says them."""
ELSEWHERE = {"debug", "demo", "demo_payments_url"}
"""Variables that have a place of their own on the page, outside the tables."""


def variables() -> dict[str, FieldInfo]:
    """Return each variable of the environment with its declaration."""
    return {str(field.alias): field for field in Environment.model_fields.values()}


def lines() -> Iterator[str]:
    """Return the line of each setting."""
    for name, field in Environment.model_fields.items():
        if name not in ELSEWHERE:
            default = _default_of(name, field)
            yield f"| `{field.alias}` | {default} | {field.description} |"
    for name, field in Conf.model_fields.items():
        if name not in Variables.model_fields:
            default = _default_of(name, field)
            meaning = f"`{field.alias}`, in the dictionary only: {field.description}"
            yield f"| | {default} | {meaning} |"


def _default_of(name: str, field: FieldInfo) -> str:
    if name in IN_WORDS:
        return IN_WORDS[name]
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping | tuple) or value in ("", b""):
        return "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
