"""The change of an account of the demo as a Django app, without models."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """The account to which a policyholder is paid is changed by two people."""

    name = "orchestrator.demo.accounts"
    label = "demo_accounts"
    verbose_name = "Demo: accounts"
