"""Floor 3 as a Django app: finds the graphs, makes the roles after each migrate."""

import sys

from django.apps import AppConfig
from django.core.checks import register
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate


class OrchestratorConfig(AppConfig):
    """The Django app of the top floor: execution, and the pages, API and commands."""

    name = "orchestrator"
    verbose_name = "Orchestrator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from checkpoints import erasure
        from checkpoints.conf import keyring
        from orchestrator import (
            account_changes,
            checks,
            connections,
            database_file,
            discovery,
        )
        from orchestrator import erasure as orchestrator_erasure
        from orchestrator.engine import errors
        from orchestrator.execution.secrets import hide_secrets
        from orchestrator.roles import make_roles
        from orchestrator.worker.configuration import is_stock_cluster

        # Before anything connects: a connection that is open keeps the label that it
        # has.
        connections.label_connections(connections.role_of_process())
        # `manage.py worker` does this itself, and django-q2's own command does not.
        if is_stock_cluster():
            connections.keep_open()

        errors.MASKS.append(hide_secrets)
        erasure.CONDITIONS.append(orchestrator_erasure.require_no_bulk_fork)
        erasure.SWEEPS.extend(orchestrator_erasure.SWEEPS)
        connection_created.connect(database_file.keep_private)
        account_changes.connect()
        post_migrate.connect(make_roles, sender=self)
        post_migrate.connect(discovery.forget_noted, sender=self)
        for check in (
            checks.check_settings,
            checks.check_payloads,
            checks.check_encryption,
            checks.check_worker,
            checks.check_graphs,
            checks.check_passkeys,
            checks.check_time_stamps,
            checks.check_atomic_nodes,
            checks.check_direct_statements,
        ):
            register(check, checks.TAG)
        for check in (
            checks.check_page_policy,
            checks.check_client_address,
            checks.check_web_connections,
            checks.check_session_cache,
        ):
            register(check, checks.TAG, deploy=True)
        # An unusable key stops the start-up itself, whatever starts: nothing must be
        # written under it. Raised from here, `ImproperlyConfigured` would end
        # commands and web servers with a traceback.
        try:
            keyring()
        except ImproperlyConfigured as error:
            sys.exit(f"Bad settings: {error}")
        discovery.discover()
