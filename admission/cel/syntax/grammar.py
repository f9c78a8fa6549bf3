"""The grammar: celpy's, with the parts of cel-go's that it lacks.

celpy 0.5.0 has no optional selection and index (`a.?b`, `a[?b]`), no optional elements and no trailing commas. Its
grammar is extended by replacing parts of its text, each of which must occur exactly once; hence celpy is pinned.
"""

import functools
from importlib import resources

import lark

from admission.cel.syntax import ast_builder, lexer

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


def text() -> str:
    """Return the extended grammar."""
    source = resources.files("celpy").joinpath("cel.lark").read_text(encoding="utf-8")
    for old, new in _REPLACEMENTS.items():
        if source.count(old) != 1:
            raise AssertionError(f"celpy's grammar is not the one that was read: {old!r}")
        source = source.replace(old, new)
    return source


@functools.cache
def parser(*, escapes: bool = False) -> lark.Lark:
    """Return the parser, built once (some 100 ms): call it at start-up, away from the event loop."""
    return lark.Lark(
        text(),
        parser="lalr",
        start="expr",
        lexer=lexer.EscapingTokens if escapes else lexer.Tokens,
        transformer=ast_builder.Builder(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )
