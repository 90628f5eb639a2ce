"""System checks: settings and keys that can be used, by a worker too; graphs without warnings, atomic nodes that fit
into a lease, and versions that the direct statements were tested with.
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
from checkpoints.conf import bundle_seed, conf, keyring, trusted_keys
from orchestrator.engine import registry
from orchestrator.worker import configuration

TAG = "countersign"
"""Of all checks below. The project's own commands run these and those of the models, and load no pages."""
PAGE_POLICIES = (
    "orchestrator.middleware.PagePolicy",
    "csp.middleware.CSPMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
)
"""Middleware of which each gives our pages a Content-Security-Policy."""
SESSIONS_THAT_NEED_A_CACHE = ("django.contrib.sessions.backends.cache", "django.contrib.sessions.backends.cached_db")
"""Engines of sessions that fail while their cache does."""
CACHES_OF_DJANGO_ALONE = ("locmem.LocMemCache", "db.DatabaseCache", "filebased.FileBasedCache", "dummy.DummyCache")
"""Caches behind which there is no server of its own that could be down."""
TESTED_DJANGO, TESTED_PSYCOPG = ("5.2", "6.0"), ("3.3",)
"""The minors that `checkpoints.db.drivers` was tested with. It rests on what neither of them promises."""


def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.E001: COUNTERSIGN has an unknown or unusable setting, an unusable key, or an unknown doorbell."""
    try:
        doorbell = conf().doorbell
        keyring()
        bundle_seed()
        _require_keys_of_one(trusted_keys())
    except ImproperlyConfigured as error:
        return [Error(str(error), id="orchestrator.E001")]
    try:
        known = not doorbell or callable(import_string(doorbell))
    except ImportError:
        known = False
    return [] if known else [Error(f"COUNTERSIGN['DOORBELL'] names no function: {doorbell}", id="orchestrator.E001")]


def _require_keys_of_one(keys: Mapping[str, bytes]) -> None:
    """Raise `ImproperlyConfigured` for a public key with which anybody can sign. An empty file tells: with any other
    key its first line is missed.
    """
    for name, key in keys.items():
        if not (verdict := bundle.verify(io.BytesIO(), key)).bad_line:
            raise ImproperlyConfigured(f"COUNTERSIGN['TRUSTED_KEYS'][{name!r}]: {verdict.reason}")


def check_payloads(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.E003: a payload backend that cannot be made. E004: a graph that asks for one that is not there."""
    if check_settings(app_configs):
        return []
    try:
        known = payloads.backends()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="orchestrator.E003")]
    return [
        Error(
            f"graph {compiled.name} asks for payloads={wanted!r}; known: {', '.join(sorted(known))}",
            hint="name it in COUNTERSIGN['PAYLOADS']",
            id="orchestrator.E004",
        )
        for compiled in registry.all()
        if (wanted := compiled.graph.payloads) is not None and wanted not in known
    ]


def check_encryption(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.E005: a graph is encrypted, and there is no key to encrypt with, so none of its runs could start."""
    if check_settings(app_configs) or keyring().encryption:
        return []
    return [
        Error(
            f"graph {compiled.name} is encrypted, and there is no encryption key",
            hint="name a key of 32 bytes in COUNTERSIGN['ENCRYPTION_KEYS']",
            id="orchestrator.E005",
        )
        for compiled in registry.all()
        if compiled.graph.encrypted
    ]


def check_worker(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.E006: a worker would refuse to start with these settings, in the same words."""
    if check_settings(app_configs):
        return []
    hint = "settings of processes that run no worker may silence orchestrator.E006"
    return [Error(fault, hint=hint, id="orchestrator.E006") for fault in configuration.find_faults()]


def check_graphs(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.W001: what the compiler warns of. An invalid graph stops the start-up itself, by name."""
    return [
        Warning(f"graph {compiled.name}: {warning}", id="orchestrator.W001")
        for compiled in registry.all()
        for warning in compiled.warnings
    ]


def check_atomic_nodes(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.E002: an atomic node may take longer than half the lease, so its lease could run out under it."""
    if check_settings(app_configs):
        return []
    most = conf().lease_seconds / 2
    return [
        Error(
            f"{compiled.name}: atomic node {node.name} takes {node.timeout:g} s, over half the lease ({most:g} s)",
            hint="give the node a shorter timeout, or COUNTERSIGN a longer LEASE_SECONDS",
            id="orchestrator.E002",
        )
        for compiled in registry.all()
        for node in compiled.nodes.values()
        if node.atomic and node.timeout is not None and node.timeout > most
    ]


def check_direct_statements(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.W002: commits go past Django's cursors, with a Django or a psycopg that this was not tested with."""
    if check_settings(app_configs) or not conf().direct_statements:
        return []
    versions: list[tuple[str, str, tuple[str, ...]]] = [("Django", django.get_version(), TESTED_DJANGO)]
    if connection.vendor == "postgresql":
        versions.append(("psycopg", import_module("psycopg").__version__, TESTED_PSYCOPG))
    return [
        Warning(
            f"commits are sent past Django's cursors, which was tested with {name} {' and '.join(tested)}, not with "
            f"{name} {version}",
            hint="set COUNTERSIGN['DIRECT_STATEMENTS'] to False until a version of countersign names this one",
            id="orchestrator.W002",
        )
        for name, version, tested in versions
        if ".".join(version.split(".")[:2]) not in tested
    ]


def check_page_policy(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
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


def check_client_address(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.W004: behind a proxy nobody has an address, so anybody can lock any name out of log-ins."""
    if check_settings(app_configs) or not settings.SECURE_PROXY_SSL_HEADER or conf().client_address_header:
        return []
    return [
        Warning(
            "behind a proxy whose header of the client's address is not named, failed log-ins are counted by name"
            " alone: anybody who knows a name can lock it out",
            hint='name the header that your proxy always sets in COUNTERSIGN["CLIENT_ADDRESS_HEADER"]'
            " (COUNTERSIGN_CLIENT_ADDRESS_HEADER), such as X-Real-IP",
            id="orchestrator.W004",
        )
    ]


def check_web_connections(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.W005: web processes keep the connection of each request, until PostgreSQL has no more."""
    age = connection.settings_dict["CONN_MAX_AGE"]
    if connection.vendor != "postgresql" or age == 0:
        return []
    return [
        Warning(
            f"DATABASES['default']['CONN_MAX_AGE'] is {age}: under ASGI each request leaves its connection open",
            hint="set it to 0, or use psycopg's pool; a worker keeps its own connections whatever it is",
            id="orchestrator.W005",
        )
    ]


def check_session_cache(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.W006: sessions need a cache server, so nobody signs in or out while it is down."""
    if settings.SESSION_ENGINE not in SESSIONS_THAT_NEED_A_CACHE:
        return []
    alias = settings.SESSION_CACHE_ALIAS
    backend = str(settings.CACHES.get(alias, {}).get("BACKEND", ""))
    if backend.removeprefix("django.core.cache.backends.") in CACHES_OF_DJANGO_ALONE:
        return []
    return [
        Warning(
            f"SESSION_ENGINE is {settings.SESSION_ENGINE}: while the cache {alias!r} ({backend}) is down or its"
            " package is missing, signing in and pages answer 500",
            hint='set SESSION_ENGINE = "orchestrator.sessions", which reads sessions from the database meanwhile',
            id="orchestrator.W006",
        )
    ]
