"""Logs: one JSON object a line for machines, coloured lines on a terminal.

All modules log through `structlog.get_logger(__name__)` with an event and named values; libraries that use `logging`
are logged in the same form. Secrets are masked by name and by form, in case a settings object is logged by mistake.
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
    shared_processors = _shared_processors()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared_processors,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        # The level of the root logger decides, since `set_level` can change it; that of a bound logger is fixed.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared_processors, processors=_final_processors(stream, as_json=as_json)
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Set the least level that is logged from now on."""
    logging.getLogger().setLevel(level.upper())


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask values that are secret by their name or form."""
    for name, value in event.items():
        event[name] = _masked(name, value)
    return event


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _final_processors(stream: TextIO, *, as_json: bool) -> list[Processor]:
    """Return the last processors, which render the text. Tracebacks are formatted first, so that they are masked."""
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if as_json:
        renderer: Processor = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty())
    return [remove_meta, structlog.processors.format_exc_info, mask_secrets, renderer]


def _masked(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET_NAME.search(name):
        return redaction.MASK
    if isinstance(value, Mapping):
        return {key: _masked(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(name, inner) for inner in value]
    # Other values, such as an error or a settings object, become text here, since the renderer would make it later.
    return redaction.masked(str(value))
