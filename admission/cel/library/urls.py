"""URLs: k8s.io/apiserver pkg/cel/library/urls.go over Go's net/url (ParseRequestURI, Parse)."""

import re
from urllib import parse as percent

from admission.cel.core import errors, values
from admission.cel.core.declarations import Overload, function, member
from admission.cel.core.values import URL
from admission.cel.library import networks

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_STRICT = ("http", "https")
"""Schemes in whose hosts a colon begins the port, and nothing else."""
_ASCII = 0x80
_PORT = re.compile(r"(?::[0-9]*)?")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST_FORBIDDEN = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]")
_ZONE_FORBIDDEN = re.compile(_HOST_FORBIDDEN.pattern.replace("[^", "[^ ", 1))
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PATH_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]/%]*")
_PATH_SAFE = "-._~$&+,/:;=@"


def parse(text: str) -> URL:
    """Parse an absolute URL or an absolute path. Raises EvaluationError."""
    if not text or any(character < " " or character == "\x7f" for character in text):
        raise _parse_error(text)
    _split(text, is_request=True)
    before, _, fragment = text.partition("#")
    if not before:
        raise _parse_error(text)
    url = _split(before, is_request=False)
    return url if not fragment else URL(f"{url.text}#{fragment}", url.scheme, url.host, url.path, url.query)


def _parse_error(text: str) -> errors.EvaluationError:
    return errors.EvaluationError(f"URL parse error during conversion from string: {text[:60]!r}")


def _split(text: str, *, is_request: bool) -> URL:
    """Split a URL into its parts. In a request, a text without a scheme is a path."""
    match = _SCHEME.match(text)
    if text.startswith(":"):
        raise _parse_error(text)
    scheme = match[1].lower() if match else ""
    rest, mark, query = text[match.end() if match else 0 :].partition("?")
    if not rest.startswith("/"):
        if not scheme and rest != "*":
            raise _parse_error(text)
        return URL(text, scheme, "", "", query)
    host, path, slashes = "", rest, ""
    if rest.startswith("//") and (scheme or not (is_request or rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        path, slashes = slash + path, f"//{authority}"
        host = _host(authority, text, is_strict=scheme in _STRICT)
    if _ESCAPE.search(path):
        raise _parse_error(text)
    prefix = f"{scheme}:" if scheme else ""
    return URL(f"{prefix}{slashes}{_escaped(path)}{mark}{query}", scheme, host, path, query)


def _host(authority: str, text: str, *, is_strict: bool) -> str:
    """Return the host with its port. is_strict: whether no colon may stand in a name (Go 1.26)."""
    user, at, host = authority.rpartition("@")
    if at and (not _USER.fullmatch(user) or _ESCAPE.search(user)):
        raise _parse_error(text)
    if "[" in host[1:] or _HOST_FORBIDDEN.search(host) or _ESCAPE.search(host):
        raise _parse_error(text)
    name, zone, port = host, "", ""
    if host.startswith("["):
        name, zone, port = _bracketed(host, text)
    elif ":" in host:
        port = host[host.find(":") if is_strict else host.rfind(":") :]
    if not _PORT.fullmatch(port) or any(byte < _ASCII for byte in _escapes(name)):
        raise _parse_error(text)
    if any(byte >= _ASCII or _ZONE_FORBIDDEN.search(chr(byte)) for byte in _escapes(zone)):
        raise _parse_error(text)
    return percent.unquote(host)


def _escapes(text: str) -> list[int]:
    return [int(escape, 16) for escape in re.findall("%(..)", text)]


def _bracketed(host: str, text: str) -> tuple[str, str, str]:
    """Return the address in brackets, its zone as it is escaped, and the port behind them."""
    end = host.rfind("]")
    address, mark, zone = host[1:end].partition("%25")
    if end < 0 or not networks.is_ipv6(address) or (mark and not zone):
        raise _parse_error(text)
    return address, zone, host[end + 1 :]


def is_url(text: str) -> bool:
    """Whether ParseRequestURI accepts the text, to which `#` is an ordinary character."""
    if not text or any(character < " " or character == "\x7f" for character in text):
        return False
    try:
        _split(text, is_request=True)
    except errors.EvaluationError:
        return False
    return True


def _escaped(path: str) -> str:
    """Return a path as it is if it is validly escaped, else escape it again."""
    if _PATH_PLAIN.fullmatch(path):
        return path
    return percent.quote(percent.unquote_to_bytes(path), safe=_PATH_SAFE)


def _hostname(url: URL) -> str:
    host = url.host
    if host.startswith("["):
        return host[1 : host.rfind("]")]
    return host.rpartition(":")[0] if ":" in host else host


def _port(url: URL) -> str:
    after = url.host[url.host.rfind("]") + 1 :]
    return after.rpartition(":")[2] if ":" in after else ""


def _query(url: URL) -> dict[str, tuple[str, ...]]:
    result: dict[str, tuple[str, ...]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part or _ESCAPE.search(part):
            continue
        key, _, value = part.partition("=")
        name = percent.unquote_plus(key)
        result[name] = (*result.get(name, ()), percent.unquote_plus(value))
    return values.StringMap(result)


OVERLOADS: tuple[Overload, ...] = (
    function("url", "string -> URL", parse),
    function("isURL", "string -> bool", is_url),
    member("getScheme", "URL -> string", lambda url: url.scheme),
    member("getHost", "URL -> string", lambda url: url.host),
    member("getHostname", "URL -> string", _hostname),
    member("getPort", "URL -> string", _port),
    member("getEscapedPath", "URL -> string", lambda url: _escaped(url.path)),
    member("getQuery", "URL -> map(string, list(string))", _query),
)
