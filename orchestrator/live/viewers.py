"""Who looks through an open socket, as the database has him now: a socket would remember who he was when it opened."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user_model,
    load_backend,
)
from django.utils.crypto import constant_time_compare

from orchestrator import tokens


class SignedOut(Exception):
    """The person's session has ended: by log-out, its age, a changed password, or because the account is closed."""


def current_person(scope: Mapping[str, Any]) -> Any:
    """The person whose socket this is. Raises `SignedOut`. Reads the session and the person, changes neither."""
    user = scope["user"]
    if not user.is_authenticated:
        raise SignedOut
    if "token" in scope:
        return _person_of_token(scope["token"])
    # Who mounts the sockets behind an authentication of his own may have no sessions.
    now = _person_of_session(scope["session"].session_key) if "session" in scope else _person(user.pk)
    if now is None or not now.is_active or now.pk != user.pk:
        raise SignedOut
    return now


def _person_of_token(key: Any) -> Any:
    """The person as whom a token may read now."""
    row = tokens.live_token(key)
    if row is None or "read" not in row.scopes:
        raise SignedOut
    return row.user


def _person(key: Any) -> Any:
    return get_user_model()._default_manager.filter(pk=key).first()


def _person_of_session(key: str | None) -> Any:
    """The person who is signed in by the session of that key, None where nobody is.

    As `django.contrib.auth.get_user`, which may give the session another key; a socket cannot tell that to the browser.
    """
    kept = import_module(settings.SESSION_ENGINE).SessionStore(key).load() if key else {}
    backend = str(kept.get(BACKEND_SESSION_KEY))
    if SESSION_KEY not in kept or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    user = load_backend(backend).get_user(get_user_model()._meta.pk.to_python(kept[SESSION_KEY]))
    if user is None:
        return None
    given = str(kept.get(HASH_SESSION_KEY, ""))
    known = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return user if any(constant_time_compare(given, one) for one in known) else None
