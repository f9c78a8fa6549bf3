"""Docstrings describe the fields and parameters that there are, so a rename that forgets one is noticed."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.test_layout import ROOT, SOURCES, TEXTS, parts

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

DESCRIBED = r"((?:[a-z_0-9]+(?:, | and ))*[a-z_0-9]+): "
IN_DOCSTRING = re.compile(rf"(?:^|[.;]\s+){DESCRIBED}")
"""What is described by name at the beginning of a sentence or clause, as in "now: the ledger's time"."""
IN_MODULE = re.compile(rf"(?:\"\"\"|[.;]\s+){DESCRIBED}")
"""The same in the text of a part of a module."""

VALUES = {"empty"}
"""Values that are described as names are."""


def test_docstrings_describe_fields_and_parameters_that_are_there() -> None:
    stale = [
        f"{path.relative_to(ROOT)}:{before + node.lineno}: {name}"
        for path in SOURCES
        for before, node in _definitions(TEXTS[path])
        if (described := _described(node))
        for name in sorted(described - {*_names(node)} - VALUES)
    ]

    assert stale == []


def _definitions(text: str) -> Iterator[tuple[int, Definition]]:
    """Yield the definitions of a module that may describe something, with the number of lines before their part."""
    for before, part in parts(text):
        if IN_MODULE.search(part):
            yield from ((before, node) for node in ast.walk(ast.parse(part)) if isinstance(node, Definition))


def _described(node: Definition) -> set[str]:
    return {
        name for names in IN_DOCSTRING.findall(ast.get_docstring(node) or "") for name in re.split(", | and ", names)
    }


def _names(node: Definition) -> Iterator[str]:
    """Yield parameters, keys of what is returned, fields and methods, private ones without their underscore, too."""
    for inner in ast.walk(node):
        match inner:
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.Constant(value=str(name)):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name.lstrip("_")
            case _:
                pass
