"""The environment of an expression: the variables, object types, type names and functions that it may refer to.

The caller declares the variables. The functions depend on the release of Kubernetes whose compiler is mirrored, and on
what the caller leaves out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from admission.cel.core import types as core_types, values
from admission.cel.core.declarations import Overload
from admission.cel.core.size_estimate import DeclaredSize
from admission.cel.core.types import Type
from admission.cel.library import catalog, protobuf_messages
from admission.cel.library.protobuf_messages import ENUM_VALUES, MESSAGES, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The names that an expression may use.

    objects: the fields of object types, by the type's name.
    """

    variables: Mapping[str, Type]
    objects: Mapping[str, Mapping[str, Type]]
    functions: Mapping[str, tuple[Overload, ...]]
    types: Mapping[str, Type]
    messages: Mapping[str, Message]
    enum_values: Mapping[str, int] = field(default_factory=lambda: ENUM_VALUES)
    unknown_result: Type = core_types.ANY
    """A static type that is accepted instead of the required one; the value is then checked at run time."""
    declared: Mapping[str, DeclaredSize] = field(default_factory=dict)
    """The largest sizes of the variables, for the static cost. Others may be of any size."""
    release: int = 36
    escapes: bool = False
    """Whether fields may be quoted in backticks."""


def for_variables(
    variables: Mapping[str, Type],
    objects: Mapping[str, Mapping[str, Type]],
    unknown_result: Type = core_types.DYN,
    *,
    release: int = 36,
    without: Collection[str] = (),
) -> Environment:
    """Return an environment with the variables and the object types.

    release: the minor version of Kubernetes. without: functions of the release that are left out.
    """
    known = catalog.FUNCTIONS_37 if release >= 37 else catalog.FUNCTIONS
    functions = {name: overloads for name, overloads in known.items() if name not in without}
    return Environment(
        variables=MappingProxyType(dict(variables)),
        objects=MappingProxyType(dict(objects)),
        functions=MappingProxyType(functions),
        types=_TYPES,
        messages=MappingProxyType({**MESSAGES, **_object_messages(objects)}),
        unknown_result=unknown_result,
        release=release,
        escapes=release >= 37,
    )


def _object_messages(objects: Mapping[str, Mapping[str, Type]]) -> dict[str, Message]:
    return {name: protobuf_messages.unknown(name, fields, Type(name)) for name, fields in objects.items()}


_TYPES: Mapping[str, Type] = MappingProxyType(
    {
        **{
            type_.name: type_
            for type_ in (
                core_types.BOOL,
                core_types.INT,
                core_types.UINT,
                core_types.DOUBLE,
                core_types.STRING,
                core_types.BYTES,
            )
        },
        "null_type": core_types.NULL,
        "list": core_types.list_of(core_types.DYN),
        "map": core_types.map_of(core_types.DYN, core_types.DYN),
        "type": core_types.type_of(core_types.DYN),
        "optional_type": core_types.optional_of(core_types.DYN),
        "net.IP": core_types.IP,
        "net.CIDR": core_types.CIDR,
        "google.protobuf.Duration": core_types.DURATION,
        "google.protobuf.Timestamp": core_types.TIMESTAMP,
        "google.protobuf.Empty": core_types.EMPTY,
    }
)


def literal_type(value: object) -> Type:
    """Return the type of a literal's value."""
    return _LITERALS[type(value)]


_LITERALS = {
    bool: core_types.BOOL,
    int: core_types.INT,
    values.Uint: core_types.UINT,
    float: core_types.DOUBLE,
    str: core_types.STRING,
    bytes: core_types.BYTES,
    type(None): core_types.NULL,
}
