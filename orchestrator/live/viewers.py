"""The person behind an open socket, read from the database at each look: the socket
itself remembers who it was when it opened.
"""

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
    """The person's session has ended: by log-out, its age, a changed password, or
    because the account is closed.
    """


def current_person(scope: Mapping[str, Any]) -> Any:
    """Return the person whose socket this is. Raises `SignedOut`. Reads the session and
    the person, changes neither.
    """
    user = scope["user"]
    if not user.is_authenticated:
        raise SignedOut
    if "token" in scope:
        return _person_of_token(scope["token"])
    # A project that mounts the sockets behind its own authentication may have no
    # sessions.
    if "session" in scope:
        person = _person_of_session(scope["session"].session_key)
    else:
        person = _person(user.pk)
    if person is None or not person.is_active or person.pk != user.pk:
        raise SignedOut
    return person


def _person_of_token(key: Any) -> Any:
    """Return the person as whom a token may read now."""
    row = tokens.live_token(key)
    if row is None or "read" not in row.scopes:
        raise SignedOut
    return row.user


def _person(key: Any) -> Any:
    return get_user_model()._default_manager.filter(pk=key).first()


def _person_of_session(key: str | None) -> Any:
    """Return the person who is signed in by the session of that key; None if nobody is.

    It does what `django.contrib.auth.get_user` does, but that may give the session
    another key, which a socket cannot pass on to the browser.
    """
    session: Mapping[str, Any] = {}
    if key:
        session = import_module(settings.SESSION_ENGINE).SessionStore(key).load()
    backend = str(session.get(BACKEND_SESSION_KEY))
    if SESSION_KEY not in session or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    user = load_backend(backend).get_user(
        get_user_model()._meta.pk.to_python(session[SESSION_KEY])
    )
    if user is None:
        return None
    session_hash = str(session.get(HASH_SESSION_KEY, ""))
    valid_hashes = (
        user.get_session_auth_hash(),
        *user.get_session_auth_fallback_hash(),
    )
    if any(constant_time_compare(session_hash, valid) for valid in valid_hashes):
        return user
    # The password was changed since the session began.
    return None
