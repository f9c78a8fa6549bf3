"""The formats of names and short texts. Each rule returns the problem of a text, or None.

Sources: `k8s.io/apimachinery` pkg/api/validate/content, and pkg/apis/resource/validation of Kubernetes (v1.37.1).
Lengths count bytes, as Go does.
"""

import re
from collections.abc import Callable

Rule = Callable[[str], str | None]

LONGEST_LABEL = 63
LONGEST_SUBDOMAIN = 253
LONGEST_DRIVER = 63
LONGEST_IDENTIFIER = 32
LONGEST_VALUE = 64
LONGEST_PORT_NAME = 15

_PART = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_PART)
_SUBDOMAIN = re.compile(rf"{_PART}(?:\.{_PART})*")
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile("[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NUMBER = "(?:0|[1-9][0-9]*)"
_PRERELEASE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+{_BUILD}(?:\.{_BUILD})*)?"
)
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def label(text: str) -> str | None:
    """Judge a DNS label: names of requests, devices, counters and counter sets."""
    if _LABEL.fullmatch(text) is None:
        return f"{text!r} is not a DNS label: lower-case letters, digits and '-' inside, such as gpu-0"
    return _too_long(text, LONGEST_LABEL)


def subdomain(text: str) -> str | None:
    """Judge a DNS subdomain: names of objects, nodes and device classes."""
    if _SUBDOMAIN.fullmatch(text) is None:
        return f"{text!r} is not a DNS subdomain: DNS labels in lower case joined by '.', such as gpu.example.com"
    return _too_long(text, LONGEST_SUBDOMAIN)


def port_name(text: str) -> str | None:
    """Judge the name of a port of a container."""
    if _LABEL.fullmatch(text) is None or "--" in text or text.replace("-", "").isdigit():
        return f"{text!r} is not a port's name: a DNS label with a letter and without '--', such as http-1"
    return _too_long(text, LONGEST_PORT_NAME)


def driver(text: str) -> str | None:
    """Judge the name of a driver, or the domain of an attribute: a DNS subdomain in upper or lower case."""
    if _SUBDOMAIN.fullmatch(text.lower()) is None:
        return f"{text!r} is not a domain such as gpu.example.com"
    return _too_long(text, LONGEST_DRIVER)


def pool(text: str) -> str | None:
    """Judge the name of a pool: DNS subdomains joined by '/'."""
    for part in text.split("/"):
        if _SUBDOMAIN.fullmatch(part) is None:
            return f"{text!r} is not a pool's name: DNS subdomains joined by '/', such as node-1 or node-1/gpus"
    return _too_long(text, LONGEST_SUBDOMAIN)


def qualified(text: str) -> str | None:
    """Judge the name of an attribute or capacity: a C identifier, with an optional domain before it.

    More than one '/' is accepted, as the API server does.
    """
    parts = text.split("/")
    if len(parts) > 2:
        return None
    return (driver(parts[0]) if len(parts) == 2 else None) or _identifier(parts[-1])


def fully_qualified(text: str) -> str | None:
    """Judge the name of an attribute in a constraint, which must have a domain."""
    if "/" not in text:
        return f"{text!r} needs a domain, such as gpu.example.com/{text or 'model'}"
    return qualified(text)


def key(text: str) -> str | None:
    """Judge the key of a label, taint or toleration, or the type of a condition."""
    prefix, slash, name = text.rpartition("/")
    if (slash and _SUBDOMAIN.fullmatch(prefix) is None) or _KEY.fullmatch(name) is None:
        return f"{text!r} is not a label's key, such as example.com/unhealthy"
    return _too_long(prefix, LONGEST_SUBDOMAIN) or _too_long(name, LONGEST_LABEL)


def value(text: str) -> str | None:
    """Judge the value of a label, taint or toleration; it may be empty."""
    if text and _KEY.fullmatch(text) is None:
        return f"{text!r} is not a label's value: letters, digits, and '-', '_' or '.' inside"
    return _too_long(text, LONGEST_LABEL)


def attribute(text: str) -> str | None:
    """Judge a string value of an attribute."""
    return _too_long(text, LONGEST_VALUE)


def version(text: str) -> str | None:
    """Judge a semantic version, as the value of an attribute."""
    if _SEMVER.fullmatch(text) is None:
        return f"{text!r} is not a semantic version (semver.org 2.0.0), such as 1.2.3"
    return _too_long(text, LONGEST_VALUE)


def uuid(text: str) -> str | None:
    """Judge a UUID in its normal form."""
    return None if _UUID.fullmatch(text) else f"{text!r} is not a UUID in lower case"


def extended_resource(text: str) -> str | None:
    """Judge the name of an extended resource."""
    domain, slash, _ = text.partition("/")
    if not slash or "kubernetes.io/" in text or text.startswith("requests.") or key(f"requests.{text}") is not None:
        return f"{text!r} is not an extended resource: a domain that is not Kubernetes' own, '/' and a name"
    return _too_long(domain, LONGEST_SUBDOMAIN)


def _identifier(text: str) -> str | None:
    if _IDENTIFIER.fullmatch(text) is None:
        return f"{text!r} is not a C identifier: letters, digits and '_', not beginning with a digit"
    return _too_long(text, LONGEST_IDENTIFIER)


def _too_long(text: str, most: int) -> str | None:
    length = len(text.encode(errors="surrogatepass"))
    return f"is {length} bytes long, at most {most} are allowed" if length > most else None
