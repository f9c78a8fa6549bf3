"""Why the webhook's server refuses a connection or a request before anything is judged."""

from collections.abc import Callable
from enum import StrEnum


class Refusal(StrEnum):
    """The reason; a label of the metrics."""

    CONNECTIONS = "connections"
    """Too many connections: closed."""
    HEAD = "head"
    """The TLS handshake or a request's head took too long: closed."""
    MALFORMED = "malformed"
    """The data is not HTTP, or a head is too large: 400."""
    PATH = "path"
    """No endpoint is known at this path: 404."""
    ENCODING = "encoding"
    """A compressed body, or one that is not JSON: 415."""
    SIZE = "size"
    """A body is too large: 413."""
    BYTES = "bytes"
    """The memory for bodies in progress is exhausted: 429."""
    REVIEWS = "reviews"
    """Too many reviews are in progress: 429."""
    BODY = "body"
    """A body took too long: 408."""
    ANSWER = "answer"
    """The client does not read its answer: closed."""


Refuse = Callable[[Refusal], None]
