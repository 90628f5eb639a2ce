"""Sessions in the database, read from a cache while it answers: a cache that is down
costs a query, never a log-in.

Named by `SESSION_ENGINE`. The database has the last word: an entry of the cache counts
for a minute at most, so a session that was ended while the cache was down does not come
back with it.
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
"""Seconds for which a cached copy of a session is trusted."""
REST_SECONDS = 10.0
"""Seconds for which a cache that failed is not used: each further attempt would keep a
visitor waiting.
"""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class SessionStore(cached_db.SessionStore):
    """Django's store of sessions in database and cache, which does without the cache
    while it fails.
    """

    def __init__(self, session_key: str | None = None) -> None:
        # Django's own __init__ looks the cache up, which fails if its package is not
        # installed.
        super(cached_db.SessionStore, self).__init__(session_key)
        self._cache: BaseCache = _Dispensable(settings.SESSION_CACHE_ALIAS)


class _Dispensable(BaseCache):
    """Wraps a cache that may fail: while it does, it seems to be empty."""

    # Shared by all requests of the process, so that only one of them waits for a cache
    # that is down.
    _rests_until = 0.0

    def __init__(self, alias: str) -> None:
        super().__init__({})
        self._alias = alias

    @property
    def _behind(self) -> BaseCache:
        """Return the cache itself. Fails if its package is not installed, so it is used
        inside `_try` alone.
        """
        return caches[self._alias]

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._try(lambda: self._behind.get(key, default, version), default)

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> None:
        # No entry outlives a copy, not even one with the timeout of the cache.
        seconds = COPY_SECONDS
        if isinstance(timeout, int):
            seconds = min(timeout, COPY_SECONDS)
        self._try(lambda: self._behind.set(key, value, seconds, version), None)

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self._try(lambda: self._behind.delete(key, version), False)

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self._try(lambda: self._behind.has_key(key, version), False)

    def _try(self, act: Callable[[], T], otherwise: T) -> T:
        """Return the cache's answer, or `otherwise` while it fails."""
        if time.monotonic() < _Dispensable._rests_until:
            return otherwise
        try:
            return act()
        except Exception as error:
            # Each driver has its own errors, and none of them matters more than a
            # session that is in the database.
            log.warning("session_cache_failed", error=type(error).__name__)
            _Dispensable._rests_until = time.monotonic() + REST_SECONDS
            return otherwise
