"""Sessions in the database, read from a cache where one answers: a cache that is away costs a look, never a log-in.

Named by `SESSION_ENGINE`. The database has the last word: what the cache holds counts for a minute at most, so a
session that was ended while the cache was away does not come back with it.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.contrib.sessions.backends import cached_db
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

COPY_SECONDS = 60
"""How long a copy of a session in the cache is believed."""
REST_SECONDS = 10.0
"""How long a cache that failed is left alone: each further try would keep somebody waiting."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class SessionStore(cached_db.SessionStore):
    """Django's store of sessions in database and cache, which does without the cache while it fails."""

    def __init__(self, session_key: str | None = None) -> None:
        # Django's own __init__ asks for the cache, which fails where its package is not installed.
        super(cached_db.SessionStore, self).__init__(session_key)
        self._cache: BaseCache = _Dispensable(settings.SESSION_CACHE_ALIAS)


class _Dispensable(BaseCache):
    """Another cache, of which nothing is expected: where it fails, it holds nothing."""

    _rests_until = 0.0

    def __init__(self, alias: str) -> None:
        super().__init__({})
        self._alias = alias

    @property
    def _behind(self) -> BaseCache:
        """Return the cache itself. Fails where its package is not installed, so it is asked for inside `_try` alone."""
        return caches[self._alias]

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._try(lambda: self._behind.get(key, default, version), default)

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        seconds = timeout if isinstance(timeout, int) else COPY_SECONDS
        self._try(lambda: self._behind.set(key, value, min(seconds, COPY_SECONDS), version), None)

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self._try(lambda: self._behind.delete(key, version), False)

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self._try(lambda: self._behind.has_key(key, version), False)

    def _try(self, act: Callable[[], T], otherwise: T) -> T:
        if time.monotonic() < _Dispensable._rests_until:
            return otherwise
        try:
            return act()
        except Exception as error:
            # Each driver has errors of its own, and none of them is worth more than a session that is in the database.
            log.warning("session_cache_failed", error=type(error).__name__)
            _Dispensable._rests_until = time.monotonic() + REST_SECONDS
            return otherwise
