"""Text → nodes."""

import lark

from admission.cel.core import ast, errors
from admission.cel.syntax import grammar

MAX_CODE_POINTS = 100_000
"""The longest text that cel-go parses (parser.ExpressionSizeCodePointLimit)."""


def prepare() -> None:
    """Read the grammar of the newest release now, some 0.1 s, instead of at the first text."""
    grammar.parser(escapes=True)


def parse(text: str, *, escapes: bool = False) -> ast.Node:
    """Return the text's expression. Raises RefusalError when it is none.

    escapes: whether fields may be written in backticks, as from Kubernetes 1.37 on.
    """
    if len(text) > MAX_CODE_POINTS:
        raise errors.RefusalError(-1, f"expression code point size exceeds limit: {len(text)}")
    try:
        return grammar.parser(escapes=escapes).parse(text)  # type: ignore[return-value]
    except lark.exceptions.VisitError as error:
        if isinstance(error.orig_exc, errors.RefusalError):
            raise error.orig_exc from None
        raise
    except lark.UnexpectedToken as error:
        raise _syntax_error(text, error) from None


def _syntax_error(text: str, error: lark.UnexpectedToken) -> errors.RefusalError:
    token = error.token
    if token.type == "$END":
        return errors.RefusalError(len(text), "Syntax error: the expression ends too early")
    return errors.RefusalError(token.start_pos or 0, f"Syntax error: unexpected {str(token)[:40]!r}")
