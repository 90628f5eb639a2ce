"""The COUNTERSIGN settings, typed, with a default for each, checked at start-up. Everybody reads them here."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from checkpoints.core.keyring import DATA_KEY, KEY_BYTES, LONGEST_KEY_ID, Keyring, derived

_ABOVE_NOTHING = (
    "lease_seconds", "slice_seconds", "node_timeout", "poll_seconds", "workers", "api_failure_seconds",
    "socket_messages_per_second",
)  # fmt: skip
_AT_LEAST_ONE = (
    "max_value_bytes", "max_upload_bytes", "max_claims_without_progress", "api_failures", "sockets_per_person",
)  # fmt: skip


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
    client_address_header: str = ""
    api_failures: int = 20
    api_failure_seconds: float = 60.0
    sockets_per_person: int = 40
    socket_messages_per_second: float = 5.0
    environment: str = "Development"
    doorbell: str = ""
    signing_keys: Mapping[str, Any] = field(default_factory=dict, repr=False)
    encryption_keys: Mapping[str, Any] = field(default_factory=dict, repr=False)
    compromised_keys: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    payloads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    default_payloads: str = "database"
    direct_statements: bool = True
    verbs_ask_rights: bool = False
    audit_head_file: str = ""
    memory_days: float = 0.0
    archive_folder: str = ""
    bundle_key: bytes = field(default=b"", repr=False)
    trusted_keys: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _ABOVE_NOTHING:
            if not getattr(self, name) > 0:
                raise ImproperlyConfigured(f"COUNTERSIGN[{name.upper()!r}] must be greater than 0")
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ImproperlyConfigured(f"COUNTERSIGN[{name.upper()!r}] must be at least 1")
        for name in ("grace_seconds", "memory_days"):
            if getattr(self, name) < 0:
                raise ImproperlyConfigured(f"COUNTERSIGN[{name.upper()!r}] must not be negative")
        if not re.fullmatch(r"[A-Za-z0-9-]*", self.client_address_header):
            raise ImproperlyConfigured("COUNTERSIGN['CLIENT_ADDRESS_HEADER'] must be the name of a header")
        for name, given in self.payloads.items():
            _check_payloads(name, given)
        if self.default_payloads not in {"database", *self.payloads}:
            raise ImproperlyConfigured(
                f"COUNTERSIGN['DEFAULT_PAYLOADS'] names {self.default_payloads!r}, which PAYLOADS does not have"
            )


def _check_payloads(name: Any, given: Any) -> None:
    """The form of one entry of PAYLOADS; `payloads.backends` makes it, and says what else is wrong with it."""
    where = f"COUNTERSIGN['PAYLOADS'][{name!r}]"
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise ImproperlyConfigured(f"{where}: a name is 1 to 60 letters, digits, _ and -")
    if name == "database":
        raise ImproperlyConfigured(f"{where}: this name is taken by the rows themselves")
    if not isinstance(given, Mapping) or not isinstance(given.get("backend"), str):
        raise ImproperlyConfigured(f"{where} must be a dictionary with a 'backend'")
    if unknown := set(given) - {"backend", "options"}:
        names = ", ".join(map(repr, sorted(unknown)))
        raise ImproperlyConfigured(f"{where} knows 'backend' and 'options', not {names}")
    if not isinstance(given.get("options", {}), Mapping):
        raise ImproperlyConfigured(f"{where}['options'] must be a dictionary")


@cache
def conf() -> Conf:
    """The settings as they are now. Raises `ImproperlyConfigured` naming an unknown setting, or one of a wrong type."""
    return _parse(getattr(settings, "COUNTERSIGN", None) or {})


@cache
def keyring() -> Keyring:
    """The keys as the settings name them now; behind all of them those derived from the secret key, which seal where
    no other does. Raises `ImproperlyConfigured` naming a key that cannot be one.
    """
    secrets = (*map(str, reversed(settings.SECRET_KEY_FALLBACKS)), str(settings.SECRET_KEY))
    return _keyring(conf(), secrets)


def bundle_seed() -> bytes:
    """The 32 bytes of the Ed25519 key that signs bundles and receipts; without one in the settings, made from the
    secret key. Raises `ImproperlyConfigured`.
    """
    given = conf().bundle_key
    if not given:
        return derived(str(settings.SECRET_KEY).encode(), "countersign bundle")
    return _key_bytes("COUNTERSIGN['BUNDLE_KEY']", _from_hex(given), FORMS)


def trusted_keys() -> dict[str, bytes]:
    """Public keys of other installations by name. Raises `ImproperlyConfigured` naming one that cannot be a key."""
    return {name: _key("TRUSTED_KEYS", name, _from_hex(key), FORMS) for name, key in conf().trusted_keys.items()}


FORMS = "base64 or hexadecimal"


def _from_hex(key: Any) -> Any:
    """Keys that people hand to each other are often hexadecimal; in base64 such a text would be longer than a key."""
    given = isinstance(key, str) and re.fullmatch(r"[0-9a-fA-F]{64}", key)
    return bytes.fromhex(key) if given else key


@receiver(setting_changed)
def _read_anew(**_: Any) -> None:
    conf.cache_clear()
    keyring.cache_clear()


def _keyring(now: Conf, secrets: Sequence[str]) -> Keyring:
    """`secrets` are what keys are derived from, the newest last."""
    signing: dict[str, bytes] = {}
    for secret in secrets:
        key = derived(secret.encode(), "countersign seal")
        # The id names the key without telling it, so a seal made under another secret key is known as such.
        signing[f"derived-{sha256(key).hexdigest()[:12]}"] = key
    signing |= {name: _key("SIGNING_KEYS", name, key) for name, key in now.signing_keys.items()}
    encryption = {name: _key("ENCRYPTION_KEYS", name, key) for name, key in now.encryption_keys.items()}
    return Keyring(signing, encryption, {n: _since(n, at) for n, at in now.compromised_keys.items()})


def _key(setting: str, name: Any, key: Any, forms: str = "base64") -> bytes:
    """The key of that id."""
    where = f"COUNTERSIGN[{setting!r}][{name!r}]"
    fits = isinstance(name, str) and name.isascii() and 1 <= len(name) <= LONGEST_KEY_ID
    if not fits or name.startswith(DATA_KEY):
        said = f"1 to {LONGEST_KEY_ID} ASCII characters, of which the first is no @"
        raise ImproperlyConfigured(f"{where}: the id of a key is {said}")
    return _key_bytes(where, key, forms)


def _key_bytes(where: str, key: Any, forms: str) -> bytes:
    """32 bytes, as they are or as text in base64; `forms` is what a refusal says that a text may be."""
    if isinstance(key, str):
        try:
            key = base64.b64decode(key, validate=True)
        except ValueError as error:
            raise ImproperlyConfigured(f"{where} is not {forms}") from error
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        size = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ImproperlyConfigured(f"{where} must be {KEY_BYTES} bytes, not {size}")
    return key


def _since(name: str, at: Any) -> datetime:
    try:
        found = at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
    except ValueError as error:
        raise ImproperlyConfigured(f"COUNTERSIGN['COMPROMISED_KEYS'][{name!r}] must be a date") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


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
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is bytes and (value is None or isinstance(value, bytes | str)):
        return value or b""
    if wanted is str and (value is None or isinstance(value, str)):
        return value or ""
    if wanted not in (float, int, bool, str, bytes) and isinstance(value, Mapping):
        return value
    raise ImproperlyConfigured(f"COUNTERSIGN[{name!r}] has a wrong type: {type(value).__name__}")
