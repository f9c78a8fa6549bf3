"""The parser: celpy's grammar, extended by the parts of cel-go's that it lacks.

celpy 0.5.0 has no optional selection and index (`a.?b`, `a[?b]`), no optional elements and no trailing commas. Its
grammar is extended by replacing parts of its text, each of which must occur exactly once; hence celpy is pinned.
"""

import functools
from importlib import resources

import lark

from admission.cel.core import ast, errors
from admission.cel.syntax import ast_builder, lexer

MAX_CODE_POINTS = 100_000
"""The longest expression that cel-go parses (parser.ExpressionSizeCodePointLimit)."""


def prepare() -> None:
    """Load the grammar of the newest release now (some 0.1 s) rather than at the first expression."""
    parser(escapes=True)


def parse(text: str, *, escapes: bool = False) -> ast.Node:
    """Return the root node of an expression. Raises RefusalError for a syntax error.

    escapes: whether fields may be quoted in backticks, as from Kubernetes 1.37 on.
    """
    if len(text) > MAX_CODE_POINTS:
        raise errors.RefusalError(-1, f"expression code point size exceeds limit: {len(text)}")
    try:
        return parser(escapes=escapes).parse(text)  # type: ignore[return-value]
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


_REPLACEMENTS = {
    "member         : member_dot | member_dot_arg | member_index | member_object | primary": (
        "member : member_dot | member_dot_arg | member_index | member_object | primary"
        " | member_opt_dot | member_opt_index"
    ),
    'member_index   : member "[" expr "]"': (
        'member_index : member "[" expr "]"\n'
        'member_opt_dot : member "." "?" IDENT | member "." "?" ESC_IDENT\n'
        'member_opt_index : member "[" "?" expr "]"'
    ),
    'member_dot     : member "." IDENT': 'member_dot : member "." IDENT | member "." ESC_IDENT',
    'NULL_LIT       : "null"': 'NULL_LIT : "null"\n\nESC_IDENT : /`[a-zA-Z0-9_.\\-\\/ ]+`/',
    'list_lit       : "[" [exprlist] "]"': (
        'list_lit : "[" [elements] [","] "]"\nelements : element | elements "," element\nelement : expr | "?" expr'
    ),
    'fieldinits     : IDENT ":" expr ("," IDENT ":" expr)*': (
        'fieldinits : fieldinit | fieldinits "," fieldinit\nfieldinit : IDENT ":" expr | "?" IDENT ":" expr'
    ),
    'member_object  : member "{" [fieldinits] "}"': 'member_object : member "{" [fieldinits] [","] "}"',
    'map_lit        : "{" [mapinits] "}"': 'map_lit : "{" [mapinits] [","] "}"',
    'mapinits       : expr ":" expr ("," expr ":" expr)*': (
        'mapinits : entry | mapinits "," entry\nentry : element ":" expr'
    ),
}


def grammar() -> str:
    """Return the extended grammar, in lark's notation."""
    source = resources.files("celpy").joinpath("cel.lark").read_text(encoding="utf-8")
    for old, new in _REPLACEMENTS.items():
        if source.count(old) != 1:
            raise AssertionError(f"celpy's grammar is not the one that was read: {old!r}")
        source = source.replace(old, new)
    return source


@functools.cache
def parser(*, escapes: bool = False) -> lark.Lark:
    """Return the parser, built once (some 100 ms): call it at start-up, off the event loop."""
    return lark.Lark(
        grammar(),
        parser="lalr",
        start="expr",
        lexer=lexer.EscapingTokens if escapes else lexer.Tokens,
        transformer=ast_builder.Builder(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )
