"""Logs: one JSON object a line for machines, coloured lines when a person looks at a terminal.

Everyone logs through `structlog.get_logger(__name__)` with an event and named values; libraries that use `logging` come
out in the same form. Secrets are masked by name and by form: nobody can be trusted never to log a settings object.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from admission.settings import redaction

_SECRET_NAME = re.compile(r"password|passwd|secret|token|authorization|private_?key|credential", re.IGNORECASE)


def configure(*, level: str = "INFO", stream: TextIO | None = None, as_json: bool | None = None) -> None:
    """Set up logging of the whole process. as_json None: JSON unless the stream is a terminal."""
    stream = stream or sys.stderr
    if as_json is None:
        as_json = not stream.isatty()
    shared = _shared()
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        # What is logged is the root logger's to say, which `set_level` may change; a bound logger's level is for good.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_last(stream, as_json=as_json))
    )
    root = logging.getLogger()
    root.handlers = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Log from now on what is of this level or above it."""
    logging.getLogger().setLevel(level.upper())


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask values whose name or form says that they are secret."""
    for name, value in event.items():
        event[name] = _masked(name, value)
    return event


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _last(stream: TextIO, *, as_json: bool) -> list[Processor]:
    """Return what makes the text. Tracebacks become text before the masking, which must see them."""
    drop = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if as_json:
        renderer: Processor = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty())
    return [drop, structlog.processors.format_exc_info, mask_secrets, renderer]


def _masked(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET_NAME.search(name):
        return redaction.MASK
    if isinstance(value, Mapping):
        return {key: _masked(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(name, inner) for inner in value]
    # Whatever else there is becomes text here, since it would behind us: an error, or a settings object.
    return redaction.masked(str(value))
