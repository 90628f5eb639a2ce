"""Logs: one JSON object a line in production, readable lines elsewhere. Called by the settings only."""

from typing import Any

import structlog


def configure(*, as_json: bool, level: str) -> dict[str, Any]:
    """Set structlog up and return Django's LOGGING, so that both kinds of loggers end in one stream (stderr)."""
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
    ending: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if not as_json:
        ending = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*shared, structlog.stdlib.ExtraAdder()],
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {"django": {"level": level}},
    }
