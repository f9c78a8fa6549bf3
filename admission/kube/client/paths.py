"""Paths of requests, built from names. A name is quoted as one segment, so it cannot change the rest of the path."""

from urllib.parse import quote

from admission.errors import FixError


def join(collection: str, *segments: str) -> str:
    """Return the path of an object below a collection, or of its subresource.

    Raises FixError for an empty name, `.` and `..`, which no object has, and which clients and servers resolve to
    another path even when they are quoted.
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            raise FixError(f"{collection}: no object is called {segment!r}; correct the name that was given")
    return "/".join((collection, *(quote(segment, safe="") for segment in segments)))


def within(root: str, namespace: str, *segments: str) -> str:
    """Return a path in a namespace. root: `/api/v1` or `/apis/GROUP/VERSION`."""
    return join(f"{root}/namespaces", namespace, *segments)
