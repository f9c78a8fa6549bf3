"""Function declarations: `member("contains", "string, string -> bool", …)`.

Signatures are written as in the CEL documentation; a single capital letter is a type parameter.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from admission.cel.core import types, values
from admission.cel.core.types import Type

Implementation = Callable[..., Any]
Prepare = Callable[[Sequence[Any]], Implementation | None]

_ALIASES = {
    "Quantity": types.QUANTITY,
    "Semver": types.SEMVER,
    "IP": types.IP,
    "CIDR": types.CIDR,
    "URL": types.URL,
    "NamedFormat": types.NAMED_FORMAT,
}

_CLASSES: Mapping[str, frozenset[type]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "uint": frozenset({values.Uint}),
    "double": frozenset({float}),
    "string": frozenset({str}),
    "bytes": frozenset({bytes}),
    "null": frozenset({NoneType}),
    "list": frozenset({tuple}),
    "map": values.MAPS,
    "optional_type": frozenset({values.Optional}),
    "type": frozenset({values.TypeValue}),
    "duration": frozenset({values.Duration}),
    "timestamp": frozenset({values.Timestamp}),
    "kubernetes.Quantity": frozenset({values.Quantity}),
    "kubernetes.Semver": frozenset({values.Semver}),
    "net.IP": frozenset({values.IP}),
    "net.CIDR": frozenset({values.CIDR}),
    "kubernetes.URL": frozenset({values.URL}),
    "kubernetes.NamedFormat": frozenset({values.NamedFormat}),
}


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function.

    classes: for each parameter, the Python classes that it accepts; None accepts all. prepare: given the arguments as
    far as they are constant, returns an implementation specialized for them, or None. It raises EvaluationError for an
    invalid constant, which becomes a compile error.
    """

    name: str
    member: bool
    parameters: tuple[Type, ...]
    result: Type
    run: Implementation
    variables: tuple[str, ...]
    classes: tuple[frozenset[type] | None, ...]
    prepare: Prepare | None = None


def function(name: str, signature: str, run: Implementation, prepare: Prepare | None = None) -> Overload:
    """Declare a function, `name(…)`."""
    return dataclasses.replace(_overload(name, signature, run, member=False), prepare=prepare)


def member(name: str, signature: str, run: Implementation, prepare: Prepare | None = None) -> Overload:
    """Declare a method; the signature's first parameter is its receiver."""
    return dataclasses.replace(_overload(name, signature, run, member=True), prepare=prepare)


def _overload(name: str, signature: str, run: Implementation, *, member: bool) -> Overload:
    before, _, after = signature.partition("->")
    parameters = tuple(map(parse, _split(before)))
    return Overload(
        name=name,
        member=member,
        parameters=parameters,
        result=parse(after.strip()),
        run=run,
        variables=tuple(
            sorted({v for type_ in parameters for v in _variables(type_)} | _variables(parse(after.strip())))
        ),
        classes=tuple(_CLASSES.get(type_.name) for type_ in parameters),
    )


def parse(text: str) -> Type:
    """Parse a type of a signature."""
    match = re.fullmatch(r"([\w.]+)(?:\((.*)\))?", text)
    if match is None:
        raise AssertionError(f"no type: {text!r}")
    name, inner = match.groups()
    if inner is None and len(name) == 1 and name.isupper():
        return Type(name, variable=True)
    if name in _ALIASES:
        return _ALIASES[name]
    if name == "optional":
        name = "optional_type"
    return Type(name, tuple(map(parse, _split(inner or ""))))


def instantiate(type_: Type, variables: Mapping[str, Type]) -> Type:
    """Return the type with its type parameters replaced."""
    if type_.variable:
        return variables[type_.name]
    if not type_.parameters:
        return type_
    return Type(type_.name, tuple(instantiate(inner, variables) for inner in type_.parameters))


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _variables(type_: Type) -> set[str]:
    if type_.variable:
        return {type_.name}
    return {name for inner in type_.parameters for name in _variables(inner)}
