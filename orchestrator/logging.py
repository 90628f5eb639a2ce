"""Logs: one JSON object a line in production, readable lines elsewhere; no line holds a
secret of the settings.
"""

from collections.abc import MutableMapping
from typing import Any

import structlog
from django.conf import settings

from checkpoints.conf import conf
from checkpoints.core.masks import mask_any

_INTERNAL = frozenset({"_record", "_from_structlog", "exc_info"})


def mask_secrets(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Mask the values of `COUNTERSIGN["SECRETS"]` everywhere in a log entry (a
    structlog processor).

    It runs after those that turn exceptions into text and before the one that renders
    the line.
    """
    # Before settings are configured, there are no secrets to know.
    secrets = conf().secrets if settings.configured else {}
    if not secrets:
        return event
    masked: dict[str, Any] = {}
    for name, value in event.items():
        # What the processors of structlog pass on among themselves is never rendered.
        if name in _INTERNAL:
            masked[name] = value
        else:
            masked[mask_any(name, secrets)] = mask_any(value, secrets)
    return masked


def masked_logger(name: str, **bound: Any) -> Any:
    """Return the logger of that name, which masks whatever it is given before
    structlog's own processors see it.

    So it masks too where a project has configured structlog in its own way, or not at
    all.
    """
    return structlog.wrap_logger(
        structlog.get_logger(name),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            mask_secrets,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        **bound,
    )


def configure(*, as_json: bool, level: str) -> dict[str, Any]:
    """Set structlog up and return Django's LOGGING, so that both kinds of loggers end
    in one stream (stderr).
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # As JSON messages and names only: never the values of a frame.
    renderer: Any = structlog.processors.JSONRenderer()
    if not as_json:
        renderer = structlog.dev.ConsoleRenderer(
            exception_formatter=structlog.dev.plain_traceback
        )
    ending: list[Any] = [structlog.processors.format_exc_info, mask_secrets, renderer]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*shared, structlog.stdlib.ExtraAdder()],
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *ending,
                ],
            }
        },
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "lines"}
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {"django": {"level": level}},
    }
