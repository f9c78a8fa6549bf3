"""The schema of the settings as a table: path, type, default, meaning and marks of each, and meanings of sections.

The meaning of a setting is the docstring below its field, which exists only in the source, so it is read from there.
"""

import ast
import functools
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from admission.settings import LIVE, SECRET, Mark, Settings

PREFIX = "MUSTER_"

_SIMPLE: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting. path: such as `webhook.port`; kind: its type, in msgspec's form."""

    path: str
    kind: Any
    default: Any
    meaning: str
    live: bool
    secret: bool

    @property
    def variable(self) -> str:
        """Its environment variable, such as `MUSTER_WEBHOOK_PORT`."""
        return PREFIX + self.path.replace(".", "_").upper()

    @property
    def section(self) -> str:
        """The name of its section; empty at the top level."""
        return self.path.rpartition(".")[0]

    @property
    def words(self) -> str:
        """The values that it takes, in words."""
        return words(self.kind)


@cache
def fields() -> Mapping[str, Field]:
    """Return every setting by its path, in the order of the schema, top level first."""
    found = list(_fields(Settings, ""))
    return {field.path: field for field in sorted(found, key=lambda field: field.section != "")}


@cache
def sections() -> Mapping[str, str]:
    """Return the meaning of every section by its name, first that of the top level, whose name is empty."""
    return dict(_sections(Settings, ""))


def values(settings: Settings) -> Mapping[str, Any]:
    """Return the values of settings by path."""
    return {path: value(settings, path) for path in fields()}


def value(settings: Settings, path: str) -> Any:
    """Return the value at a path of settings."""
    return functools.reduce(getattr, path.split("."), settings)


def replaced(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return settings with other values at some paths."""
    for path, new in changes.items():
        settings = _replaced(settings, path, new)
    return settings


def _replaced(struct: Any, path: str, new: Any) -> Any:
    name, _, rest = path.partition(".")
    return msgspec.structs.replace(struct, **{name: _replaced(getattr(struct, name), rest, new) if rest else new})


def words(kind: Any) -> str:
    """Return a description of the values of a type."""
    bare, marks = _split_annotations(kind)
    origin = get_origin(bare)
    if bare in _SIMPLE:
        return _SIMPLE[bare] + _bounds(marks)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(bare)))}"
    if origin is tuple:
        return "a list of texts" if get_args(bare)[0] is str else f"a list, each {words(get_args(bare)[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(words(part) for part in get_args(bare) if part is not type(None))
    raise TypeError(f"no words for {kind}")


def accepts_none(kind: Any) -> bool:
    """Return whether None is a value of a type."""
    bare, _ = _split_annotations(kind)
    return type(None) in get_args(bare)


def is_list(kind: Any) -> bool:
    """Return whether the values of a type are lists."""
    return get_origin(_split_annotations(kind)[0]) is tuple


def _fields(struct: Any, section: str) -> Iterator[Field]:
    meanings = _meanings(struct)
    defaults = struct()
    for name, kind in typing.get_type_hints(struct, include_extras=True).items():
        if _is_section(kind):
            yield from _fields(kind, f"{section}{name}.")
            continue
        _, marks = _split_annotations(kind)
        yield Field(
            path=f"{section}{name}",
            kind=_without_marks(kind),
            default=getattr(defaults, name),
            meaning=meanings.get(name, ""),
            live=LIVE in marks,
            secret=SECRET in marks,
        )


def _sections(struct: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, _summary(struct)
    for field, kind in typing.get_type_hints(struct).items():
        if _is_section(kind):
            yield from _sections(kind, f"{name}.{field}" if name else field)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _split_annotations(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its annotations, and the annotations."""
    if get_origin(kind) is not Annotated:
        return kind, ()
    inner, *marks = get_args(kind)
    return inner, tuple(marks)


def _without_marks(kind: Any) -> Any:
    """Return a type with only those annotations that msgspec knows."""
    bare, marks = _split_annotations(kind)
    for mark in marks:
        if not isinstance(mark, Mark):
            bare = Annotated[bare, mark]
    return bare


def _bounds(marks: tuple[Any, ...]) -> str:
    """Return a description of the bounds of a number."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = [
        f"{word} {bound:g}"
        for mark in marks
        if isinstance(mark, msgspec.Meta)
        for name, word in words.items()
        if (bound := getattr(mark, name)) is not None
    ]
    return f" {' and '.join(found)}" if found else ""


def _summary(struct: Any) -> str:
    return " ".join((inspect.getdoc(struct) or "").split())


def _meanings(struct: Any) -> Mapping[str, str]:
    """Return the docstrings below the fields of a struct."""
    [body] = (node.body for node in ast.walk(ast.parse(inspect.getsource(struct))) if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    for field, following in pairwise(body):
        match field, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found
