"""The COUNTERSIGN settings, typed, with a default for each, checked at start-up. Everybody reads them here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True, slots=True)
class Conf:
    """One installation's settings. Seconds are floats, sizes are bytes."""

    lease_seconds: float = 15.0
    slice_seconds: float = 10.0
    grace_seconds: float = 10.0
    node_timeout: float = 60.0
    poll_seconds: float = 0.05
    workers: int = 2
    max_value_bytes: int = 4 * 1024 * 1024
    max_upload_bytes: int = 64 * 1024 * 1024
    max_claims_without_progress: int = 5
    environment: str = "Development"
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "slice_seconds", "node_timeout", "poll_seconds", "workers"):
            if not getattr(self, name) > 0:
                raise ImproperlyConfigured(f"COUNTERSIGN[{name.upper()!r}] must be greater than 0")
        for name in ("max_value_bytes", "max_upload_bytes", "max_claims_without_progress"):
            if getattr(self, name) < 1:
                raise ImproperlyConfigured(f"COUNTERSIGN[{name.upper()!r}] must be at least 1")
        if self.grace_seconds < 0:
            raise ImproperlyConfigured("COUNTERSIGN['GRACE_SECONDS'] must not be negative")


_read: tuple[Mapping[str, Any], Conf] | None = None


def conf() -> Conf:
    """The settings as they are now. Raises `ImproperlyConfigured` naming an unknown setting, or one of a wrong type."""
    global _read
    given: Mapping[str, Any] = getattr(settings, "COUNTERSIGN", None) or {}
    # Kept by identity of the dictionary, so that overridden settings are read anew and a hot loop pays nothing.
    if _read is None or _read[0] is not given:
        _read = (given, _parse(given))
    return _read[1]


def _parse(given: Mapping[str, Any]) -> Conf:
    known = {f.name.upper(): f for f in fields(Conf)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ImproperlyConfigured(f"COUNTERSIGN has no setting {name!r}; known: {', '.join(sorted(known))}")
        values[name.lower()] = _typed(name, value, known[name].type)
    return Conf(**values)


def _typed(name: str, value: Any, wanted: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is float and number:
        return float(value)
    if wanted is int and number and isinstance(value, int):
        return value
    if wanted is str and isinstance(value, str):
        return value
    if wanted not in (float, int, str) and isinstance(value, Mapping):
        return value
    raise ImproperlyConfigured(f"COUNTERSIGN[{name!r}] has a wrong type: {type(value).__name__}")
