"""System checks: settings and keys that can be used, by a worker too; graphs without
warnings, atomic nodes that fit into a lease, and versions that the direct statements
were tested with.
"""

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import django
from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.utils.module_loading import import_string

from checkpoints import bundle, payloads
from checkpoints.conf import conf, keyring
from orchestrator.discovery import is_encrypted
from orchestrator.engine import registry
from orchestrator.engine.graphs.confirmation import PASSKEY
from orchestrator.engine.graphs.node import Node
from orchestrator.worker import configuration

TAG = "countersign"
"""The tag of all checks below. The project's own commands run these and those of the
models, and load no pages.
"""
PAGE_POLICIES = (
    "orchestrator.middleware.PagePolicy",
    "csp.middleware.CSPMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
)
"""Middleware of which each gives our pages a Content-Security-Policy."""
SESSIONS_THAT_NEED_A_CACHE = (
    "django.contrib.sessions.backends.cache",
    "django.contrib.sessions.backends.cached_db",
)
"""Engines of sessions that fail while their cache does."""
CACHES_OF_DJANGO_ALONE = (
    "locmem.LocMemCache",
    "db.DatabaseCache",
    "filebased.FileBasedCache",
    "dummy.DummyCache",
)
"""Caches without a server that could be down."""
TESTED_DJANGO = ("5.2", "6.0")
TESTED_PSYCOPG = ("3.3",)
"""The minors that `checkpoints.db.drivers` was tested with. It relies on behaviour that
neither of them promises.
"""


def check_settings(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E001: COUNTERSIGN has an unknown or unusable setting, an unusable
    key, or an unknown doorbell.
    """
    try:
        doorbell = conf().doorbell
        _refuse_keys_of_anybody(conf().trusted_keys)
    except ImproperlyConfigured as error:
        return [Error(str(error), id="orchestrator.E001")]
    if not doorbell or _names_a_function(doorbell):
        return []
    return [
        Error(
            f"COUNTERSIGN['DOORBELL'] names no function: {doorbell}",
            id="orchestrator.E001",
        )
    ]


def _names_a_function(dotted_path: str) -> bool:
    try:
        return callable(import_string(dotted_path))
    except ImportError:
        return False


def _refuse_keys_of_anybody(keys: Mapping[str, bytes]) -> None:
    """Raise `ImproperlyConfigured` for a public key with which anybody can sign. An
    empty file reveals it: with any other key its first line is missed.
    """
    for name, key in keys.items():
        verdict = bundle.verify(io.BytesIO(), key)
        if not verdict.bad_line:
            raise ImproperlyConfigured(
                f"COUNTERSIGN['TRUSTED_KEYS'][{name!r}]: {verdict.reason}"
            )


def check_payloads(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E003: a payload backend that cannot be made. E004: a graph names one
    that is not configured.
    """
    # Settings that cannot be read are reported once, by their own check.
    if check_settings(app_configs):
        return []
    try:
        configured = payloads.backends()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="orchestrator.E003")]

    names = ", ".join(sorted(configured))
    faults: list[CheckMessage] = []
    for compiled in registry.all():
        backend = compiled.graph.payloads
        if backend is None or backend in configured:
            continue
        fault = Error(
            f"graph {compiled.name} asks for payloads={backend!r}; known: {names}",
            hint="name it in COUNTERSIGN['PAYLOADS']",
            id="orchestrator.E004",
        )
        faults.append(fault)
    return faults


def check_encryption(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E005: a graph is encrypted, and there is no key to encrypt with, so
    none of its runs could start.
    """
    if check_settings(app_configs) or keyring().encryption:
        return []
    return [
        Error(
            f"graph {compiled.name} is encrypted, and there is no encryption key",
            hint="name a key of 32 bytes in COUNTERSIGN['ENCRYPTION_KEYS']",
            id="orchestrator.E005",
        )
        for compiled in registry.all()
        if is_encrypted(compiled)
    ]


def check_worker(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E006: a worker would refuse to start with these settings, in the
    same words.
    """
    if check_settings(app_configs):
        return []
    hint = "settings of processes that run no worker may silence orchestrator.E006"
    return [
        Error(fault, hint=hint, id="orchestrator.E006")
        for fault in configuration.find_faults()
    ]


def check_graphs(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W001: what the compiler warns of. An invalid graph stops the
    start-up itself, by name.
    """
    return [
        Warning(f"graph {compiled.name}: {warning}", id="orchestrator.W001")
        for compiled in registry.all()
        for warning in compiled.warnings
    ]


def check_passkeys(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W007: a gate asks for a passkey, and the library that reads passkeys
    is not installed, so nobody could sign there.
    """
    # It reads models, which are not there yet while this module is imported.
    from approvals import passkeys

    if passkeys.is_available:
        return []
    return [
        Warning(
            f"gate {compiled.name}.{node.name} asks for a passkey, and the library "
            "webauthn is not installed: nobody can sign there",
            hint="pip install 'django-countersign[passkeys]'",
            id="orchestrator.W007",
        )
        for compiled in registry.all()
        for node in compiled.graph.nodes
        if node.gate is not None and node.gate.confirm == PASSKEY
    ]


def check_time_stamps(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E007: the audit log is to be stamped, and the library that reads
    time stamps is not installed, or no certificates are named to verify them.
    """
    # It reads models, which are not there yet while this module is imported.
    from checkpoints import time_stamps

    if not conf().time_stamp_url:
        return []
    reason = "the package rfc3161-client is not installed"
    if time_stamps.is_available:
        reason = _fault_of_roots()
    if not reason:
        return []
    return [
        Error(
            "COUNTERSIGN['TIME_STAMP_URL'] is set, and no time stamp can be verified: "
            f"{reason}",
            hint="pip install 'django-countersign[timestamps]', and name the file of "
            "the authority's root certificates in COUNTERSIGN['TIME_STAMP_ROOTS']",
            id="orchestrator.E007",
        )
    ]


def _fault_of_roots() -> str:
    """Return why the certificates that verify time stamps cannot be read; empty if they
    can.
    """
    from checkpoints.time_stamps import roots

    try:
        roots()
    except (OSError, ValueError) as error:
        return f"the file of TIME_STAMP_ROOTS cannot be read: {type(error).__name__}"
    return ""


def check_atomic_nodes(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E002: an atomic node may take longer than half the lease, so its
    lease could run out under it.
    """
    if check_settings(app_configs):
        return []
    most = conf().lease_seconds / 2
    faults: list[CheckMessage] = []
    for compiled in registry.all():
        for node in compiled.nodes.values():
            if node.atomic and node.timeout is not None and node.timeout > most:
                faults.append(_atomic_for_too_long(compiled.name, node, most))
    return faults


def _atomic_for_too_long(graph: str, node: Node, most: float) -> Error:
    return Error(
        f"{graph}: atomic node {node.name} takes {node.timeout:g} s, "
        f"over half the lease ({most:g} s)",
        hint="give the node a shorter timeout, or COUNTERSIGN a longer LEASE_SECONDS",
        id="orchestrator.E002",
    )


def check_direct_statements(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W002: commits go past Django's cursors, with a Django or a psycopg
    that this was not tested with.
    """
    if check_settings(app_configs) or not conf().direct_statements:
        return []
    faults: list[CheckMessage] = []
    if not _is_tested(django.get_version(), TESTED_DJANGO):
        faults.append(_untested("Django", django.get_version(), TESTED_DJANGO))
    if connection.vendor == "postgresql":
        # Only installations on PostgreSQL have the driver.
        version = import_module("psycopg").__version__
        if not _is_tested(version, TESTED_PSYCOPG):
            faults.append(_untested("psycopg", version, TESTED_PSYCOPG))
    return faults


def _is_tested(version: str, tested: tuple[str, ...]) -> bool:
    minor = ".".join(version.split(".")[:2])
    return minor in tested


def _untested(name: str, version: str, tested: tuple[str, ...]) -> Warning:
    minors = " and ".join(tested)
    return Warning(
        "commits are sent past Django's cursors, "
        f"which was tested with {name} {minors}, not with {name} {version}",
        hint="set COUNTERSIGN['DIRECT_STATEMENTS'] to False "
        "until a version of countersign names this one",
        id="orchestrator.W002",
    )


def check_page_policy(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W003: our pages go out without a Content-Security-Policy."""
    if any(name in settings.MIDDLEWARE for name in PAGE_POLICIES):
        return []
    return [
        Warning(
            "the pages of countersign go out without a Content-Security-Policy",
            hint=f'put "{PAGE_POLICIES[0]}" at the beginning of MIDDLEWARE',
            id="orchestrator.W003",
        )
    ]


def check_client_address(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W004: behind a proxy no request has an address, so anybody can lock
    any name out.
    """
    if check_settings(app_configs):
        return []
    if not settings.SECURE_PROXY_SSL_HEADER or conf().client_address_header:
        return []
    return [
        Warning(
            "behind a proxy whose header of the client's address is not named, "
            "failed log-ins are counted by name alone: "
            "anybody who knows a name can lock it out",
            hint="name the header that your proxy always sets in "
            'COUNTERSIGN["CLIENT_ADDRESS_HEADER"] '
            "(COUNTERSIGN_CLIENT_ADDRESS_HEADER), such as X-Real-IP",
            id="orchestrator.W004",
        )
    ]


def check_web_connections(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W005: web processes keep the connection of each request, until
    PostgreSQL has no more.
    """
    age = connection.settings_dict["CONN_MAX_AGE"]
    if connection.vendor != "postgresql" or age == 0:
        return []
    return [
        Warning(
            f"DATABASES['default']['CONN_MAX_AGE'] is {age}: "
            "under ASGI each request leaves its connection open",
            hint="set it to 0, or use psycopg's pool; "
            "a worker keeps its own connections whatever it is",
            id="orchestrator.W005",
        )
    ]


def check_session_cache(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.W006: sessions need a cache server, so nobody signs in or out while
    it is down.
    """
    if settings.SESSION_ENGINE not in SESSIONS_THAT_NEED_A_CACHE:
        return []
    alias = settings.SESSION_CACHE_ALIAS
    cache = settings.CACHES.get(alias, {})
    backend = str(cache.get("BACKEND", ""))
    if backend.removeprefix("django.core.cache.backends.") in CACHES_OF_DJANGO_ALONE:
        return []
    return [
        Warning(
            f"SESSION_ENGINE is {settings.SESSION_ENGINE}: "
            f"while the cache {alias!r} ({backend}) is down or its package is missing, "
            "signing in and pages answer 500",
            hint='set SESSION_ENGINE = "orchestrator.sessions", '
            "which reads sessions from the database meanwhile",
            id="orchestrator.W006",
        )
    ]
