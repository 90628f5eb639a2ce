"""System checks: settings and keys that can be used, by a worker too; graphs without warnings, atomic nodes that fit
into a lease.
"""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from checkpoints import payloads
from checkpoints.conf import conf, keyring
from orchestrator.engine import registry
from orchestrator.worker import configuration


def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """orchestrator.E001: COUNTERSIGN has an unknown setting, one of a wrong type or value, a key that cannot be one, or
    a doorbell that is not there.
    """
    try:
        doorbell = conf().doorbell
        keyring()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="orchestrator.E001")]
    try:
        known = not doorbell or callable(import_string(doorbell))
    except ImportError:
        known = False
    return [] if known else [Error(f"COUNTERSIGN['DOORBELL'] names no function: {doorbell}", id="orchestrator.E001")]


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
