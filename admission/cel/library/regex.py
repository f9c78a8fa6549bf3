"""Regular expressions of Go's regexp, whose syntax is RE2's, with google-re2."""

from collections.abc import Callable, Sequence
from typing import Any

import re2

from admission.cel.core import errors
from admission.cel.core.declarations import Implementation, Overload, function, member

MAX_MEMORY = 512 * 1024
"""Octets for one pattern, some 8,000 instructions. Larger ones, which Go accepts, could search for seconds."""


MAX_CLASSES = 32
"""Classes of Unicode in one pattern."""


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    return options


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern. Raises EvaluationError for an invalid one."""
    if _has_byte_escape(pattern):
        raise errors.EvaluationError("error parsing regexp: invalid escape sequence: `\\C`")
    if pattern.count("\\p") + pattern.count("\\P") > MAX_CLASSES:
        # RE2 would say so, too, of all but the smallest classes, a tenth of a millisecond for each class later.
        raise errors.EvaluationError("error parsing regexp: pattern too large - compile failed")
    try:
        return re2.compile(pattern, _options())
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        detail = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise errors.EvaluationError(f"error parsing regexp: {detail[:200]}") from None


def _has_byte_escape(pattern: str) -> bool:
    r"""Whether the pattern has `\C`, a single byte, which RE2 accepts and Go rejects."""
    position = pattern.find("\\")
    while position >= 0:
        if pattern[position + 1 : position + 2] == "C":
            return True
        position = pattern.find("\\", position + 2)
    return False


def _matches(text: str, compiled: Any) -> bool:
    return compiled.search(text) is not None


def find(text: str, compiled: Any) -> str:
    """Return the first match, or an empty string."""
    match = compiled.search(text)
    return match.group() if match else ""


def _find_all(text: str, compiled: Any, limit: int = -1) -> tuple[str, ...]:
    """Return all matches, without empty ones that touch the match before, which Go drops."""
    result: list[str] = []
    end = -1
    for match in compiled.finditer(text):
        if limit >= 0 and len(result) >= limit:
            break
        if match.end() > match.start() or match.start() != end:
            result.append(match.group())
        end = match.end()
    return tuple(result)


def _compiling(run: Callable[..., Any]) -> Implementation:
    """Compile the pattern at each call."""
    return lambda text, pattern, *rest: run(text, compile_pattern(pattern), *rest)


def _prepared(run: Callable[..., Any]) -> Callable[[Sequence[Any]], Implementation | None]:
    """Compile a constant pattern once. An invalid one is a compile error of the expression."""

    def prepare(constants: Sequence[Any]) -> Implementation | None:
        if type(constants[1]) is not str:
            return None
        compiled = compile_pattern(constants[1])
        return lambda text, _, *rest: run(text, compiled, *rest)

    return prepare


OVERLOADS: tuple[Overload, ...] = (
    function("matches", "string, string -> bool", _compiling(_matches), _prepared(_matches)),
    member("matches", "string, string -> bool", _compiling(_matches), _prepared(_matches)),
    member("find", "string, string -> string", _compiling(find), _prepared(find)),
    member("findAll", "string, string -> list(string)", _compiling(_find_all), _prepared(_find_all)),
    member("findAll", "string, string, int -> list(string)", _compiling(_find_all), _prepared(_find_all)),
)
