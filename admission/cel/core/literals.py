"""Conversion of literal tokens into values, by cel-go's rules (parser/unescape.go, v0.26)."""

import re

import lark

from admission.cel.core import errors, values

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1

_ESCAPE = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\"'\\?`])|(?P<octal>[0-3][0-7]{2})|[xX](?P<byte>[0-9a-fA-F]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def integer(token: lark.Token) -> int:
    """Return the magnitude, up to 2^63, which is in range only after a minus sign."""
    value = _number(token)
    if value > -INT_MIN:
        raise errors.RefusalError(token.start_pos or 0, "invalid int literal")
    return value


def unsigned(token: lark.Token) -> values.Uint:
    digits = token[:-1]
    value = _number(digits)
    if value > UINT_MAX:
        raise errors.RefusalError(token.start_pos or 0, "invalid uint literal")
    return values.Uint(value)


def _number(digits: str) -> int:
    """Return the number. Digits that cannot fit 64 bits give UINT_MAX + 1, without converting them."""
    base = 16 if digits.startswith("0x") else 10
    significant = digits.removeprefix("0x").lstrip("0")
    return int(significant or "0", base) if len(significant) <= _MAX_DIGITS else UINT_MAX + 1


_MAX_DIGITS = 20


def double(token: lark.Token) -> float:
    value = float(token)
    if value in (float("inf"), float("-inf")):
        raise errors.RefusalError(token.start_pos or 0, "invalid double literal")
    return value


def string(token: lark.Token) -> str:
    """Return a string token's value: without quotes, unescaped, with line ends normalized as cel-go does."""
    body, raw = _body(str(token))
    if raw or "\\" not in body:
        return body
    return _ESCAPE.sub(lambda match: _character(match, token), body)


def octets(token: lark.Token) -> bytes:
    """Return a bytes token's value: characters in UTF-8, octal and hexadecimal escapes as single bytes."""
    body, raw = _body(str(token)[1:])
    if raw:
        return body.encode()
    result = bytearray()
    position = 0
    for match in _ESCAPE.finditer(body):
        result += body[position : match.start()].encode()
        result += _octet(match, token)
        position = match.end()
    return bytes(result + body[position:].encode())


def _body(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    text = text[raw:].replace("\r\n", "\n").replace("\r", "\n")
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[quotes:-quotes], raw


def _character(match: re.Match[str], token: lark.Token) -> str:
    if simple := match["simple"]:
        return _SIMPLE.get(simple, simple)
    if octal := match["octal"]:
        return chr(int(octal, 8))
    code = int(match["byte"] or match["short"] or match["long"], 16)
    if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
        raise errors.RefusalError(token.start_pos or 0, "invalid unicode code point")
    return chr(code)


def _octet(match: re.Match[str], token: lark.Token) -> bytes:
    if simple := match["simple"]:
        return _SIMPLE.get(simple, simple).encode()
    if match["short"] or match["long"]:
        raise errors.RefusalError(token.start_pos or 0, "unable to unescape string")
    return bytes([int(match["octal"], 8) if match["octal"] else int(match["byte"], 16)])
