"""The account of a person who is named by hand."""

from typing import Any

from django.contrib.auth import get_user_model

from checkpoints.core.ids import is_storable
from orchestrator.engine.errors import InvalidValue

LONGEST_NAME = 150


def active_account(name: str, path: str) -> Any:
    """Return the active account of a name that was sent at this path. Raises
    `InvalidValue`.
    """
    accounts = get_user_model()
    account = None
    # The database would refuse such a text, and no account has it as its name.
    if is_storable(name) and len(name) <= LONGEST_NAME:
        lookup = {accounts.USERNAME_FIELD: name, "is_active": True}
        account = accounts._default_manager.filter(**lookup).first()
    if account is None:
        shown = name[:LONGEST_NAME].encode("utf-8", "replace").decode()
        raise InvalidValue(f"there is no user {shown}", path=path)
    return account
