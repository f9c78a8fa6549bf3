r"""The lexer, by cel-go's lexical rules (parser/gen/CEL.g4, v0.26).

celpy's terminals accept more than cel-go (`"a\"`, `"\z"`, `1.`, signs inside numbers), so this lexer replaces them.
Tokens have the names that lark gives to the grammar's terminals.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import lark
from lark.lexer import Lexer

from admission.cel.core import errors

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_QUOTED = "|".join(
    (
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
_RAW = r'"""[\s\S]*?"""' + "|" + r"'''[\s\S]*?'''" + r'|"[^"\n\r]*"' + r"|'[^'\n\r]*'"
_EXPONENT = r"[eE][+-]?[0-9]+"

_TOKEN = re.compile(
    rf"""
    (?P<SPACE>[\t\n\f\r ]+|//[^\n]*)
    |(?P<BYTES_LIT>[bB](?:[rR](?:{_RAW})|{_QUOTED}))
    |(?P<STRING_LIT>[rR](?:{_RAW})|{_QUOTED})
    |(?P<FLOAT_LIT>[0-9]+\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT}|\.[0-9]+(?:{_EXPONENT})?)
    |(?P<UINT_LIT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<INT_LIT>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<IDENT>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<ESC_IDENT>`[a-zA-Z0-9_.\-/\ ]+`)
    |(?P<OPERATOR>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.VERBOSE,
)

_WORDS = {"true": "BOOL_LIT", "false": "BOOL_LIT", "null": "NULL_LIT", "in": "IN"}


_PATTERN_FUNCTIONS = frozenset({"matches", "find", "findAll"})

_FIXED = 10
"""Tokens that compiling an expression of one token takes as long as."""

_CHARACTERS = 64
"""Characters of a long token that take as long as a token; a quarter of them within a regular expression."""


class Size(NamedTuple):
    """How much work it is to compile an expression, at most: tokens, and regular expressions.

    large_patterns: those that may be large for their length, by repetitions and classes of characters.
    """

    tokens: int
    patterns: int = 0
    large_patterns: int = 0


def measure(text: str) -> Size:
    """Return the size of an expression, without parsing it; of what comes before a place that is no token."""
    tokens, patterns, position = _FIXED, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            break
        kind = match.lastgroup
        tokens += kind != "SPACE"
        patterns += kind == "IDENT" and match.group() in _PATTERN_FUNCTIONS
        position = match.end()
    tokens += len(text) // (_CHARACTERS // 4 if patterns else _CHARACTERS)
    # Without these nothing in the text becomes a repetition, or a class of Unicode: all others are a few instructions.
    may_be_large = patterns and any(part in text for part in ("{", "\\", "+", "base64", "format"))
    return Size(tokens, patterns, patterns if may_be_large else 0)


class Tokens(Lexer):
    """The lexer that lark calls. Raises RefusalError where no token matches."""

    escapes = False

    def __init__(self, lexer_conf: Any) -> None:
        self._operators = {
            terminal.pattern.value: terminal.name for terminal in lexer_conf.terminals if terminal.pattern.type == "str"
        }

    def lex(self, data: str) -> Iterator[lark.Token]:  # type: ignore[override] # lark passes the text
        position = 0
        while position < len(data):
            match = _TOKEN.match(data, position)
            if match is None:
                raise errors.RefusalError(position, f"Syntax error: token recognition error at: {data[position]!r}")
            if match.lastgroup != "SPACE":
                yield self._token(match)
            position = match.end()

    def _token(self, match: re.Match[str]) -> lark.Token:
        text, terminal = match.group(), match.lastgroup or ""
        if terminal == "IDENT":
            terminal = _WORDS.get(text, terminal)
        elif terminal == "OPERATOR":
            terminal = self._operators[text]
        elif terminal == "ESC_IDENT" and not self.escapes:
            raise errors.RefusalError(match.start(), "unsupported syntax: '`'")
        return lark.Token(terminal, text, start_pos=match.start(), end_pos=match.end())


class EscapingTokens(Tokens):
    """The lexer of a parser that accepts fields in backticks."""

    escapes = True
