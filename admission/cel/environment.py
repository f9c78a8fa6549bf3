"""The environment of an expression: the variables, object types, type names and functions that it may refer to.

A device selector has `device`, a ClaimPolicy's rule other variables. Functions depend on the release and the mode of
the Kubernetes compiler that a Profile selects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from admission.cel.core import types as core_types, values
from admission.cel.core.declarations import Overload
from admission.cel.core.size_estimate import DeclaredSize
from admission.cel.core.types import Type
from admission.cel.library import catalog, protobuf_messages
from admission.cel.library.protobuf_messages import MESSAGES, Message

DEVICE = Type("kubernetes.DRADevice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The compiler of Kubernetes that is mirrored (k8s.io/dynamic-resource-allocation/cel, 1.36 and 1.37).

    release: the minor version; stored: the scheduler's environment, else the stricter one in which the API server
    validates new objects; lists: the gate DRAListTypeAttributes; consumable: the gate DRAConsumableCapacity.
    """

    release: int = 36
    stored: bool = True
    lists: bool = False
    consumable: bool = True

    @property
    def reads_lists(self) -> bool:
        """Whether attributes may be lists. If not, every selector fails on a device that has one."""
        return self.lists or self.release >= 37


DEFAULT = Profile()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The names that an expression may use.

    objects: the fields of object types, by the type's name. unsupported: functions of Kubernetes that Muster lacks.
    """

    variables: Mapping[str, Type]
    objects: Mapping[str, Mapping[str, Type]]
    functions: Mapping[str, tuple[Overload, ...]]
    types: Mapping[str, Type]
    messages: Mapping[str, Message]
    unsupported: frozenset[str]
    unknown_result: Type = core_types.ANY
    """A static type that is accepted instead of the required one; the value is then checked at run time."""
    declared: Mapping[str, DeclaredSize] = field(default_factory=dict)
    """The largest sizes of the variables, for the static cost. Others may be of any size."""
    release: int = 36
    escapes: bool = False
    """Whether fields may be quoted in backticks."""

    def undeclared_function(self, function: str) -> str:
        """Return the error message for a function that is not declared."""
        message = f"undeclared reference to '{function}' (in container '')"
        if function in self.unsupported:
            return f"{message}: a function of Kubernetes that Muster does not know"
        return message


def for_device(profile: Profile) -> Environment:
    """Return the environment of selectors of devices and meters, and of prices."""
    attribute = core_types.DYN if profile.lists or (profile.release >= 37 and profile.stored) else core_types.ANY
    fields = {
        "driver": core_types.STRING,
        "attributes": core_types.map_of(core_types.STRING, core_types.map_of(core_types.STRING, attribute)),
        "capacity": core_types.map_of(core_types.STRING, core_types.map_of(core_types.STRING, core_types.QUANTITY)),
    }
    if profile.stored or profile.consumable:
        fields["allowMultipleAllocations"] = core_types.BOOL
    environment = for_variables({"device": DEVICE}, {DEVICE.name: fields}, attribute, profile)
    return replace(environment, declared={"device": _DEVICE_SIZES})


_MAX_NAMES = 32
"""Attributes, and capacities, of one device (resource.k8s.io ResourceSliceMaxAttributesAndCapacitiesPerDevice)."""


def _nested_map_size(value: DeclaredSize, named: DeclaredSize | None) -> DeclaredSize:
    inner = DeclaredSize(most=_MAX_NAMES, key=DeclaredSize(most=32), value=value, named=named)
    return DeclaredSize(most=_MAX_NAMES, key=DeclaredSize(most=63), value=inner)


_ATTRIBUTE_SIZE = DeclaredSize(most=64)
_DEVICE_SIZES = DeclaredSize(
    fields={
        "driver": DeclaredSize(most=63),
        "allowMultipleAllocations": DeclaredSize(most=1),
        "attributes": _nested_map_size(_ATTRIBUTE_SIZE, _ATTRIBUTE_SIZE),
        "capacity": _nested_map_size(DeclaredSize(), None),
    }
)


def for_variables(
    variables: Mapping[str, Type],
    objects: Mapping[str, Mapping[str, Type]],
    unknown_result: Type = core_types.DYN,
    profile: Profile = DEFAULT,
) -> Environment:
    """Return an environment with the variables and the object types."""
    functions = dict(catalog.FUNCTIONS_37 if profile.release >= 37 else catalog.FUNCTIONS)
    if not (profile.stored or profile.lists):
        del functions["includes"]
    return Environment(
        variables=MappingProxyType(dict(variables)),
        objects=MappingProxyType(dict(objects)),
        functions=MappingProxyType(functions),
        types=_TYPES,
        messages=MappingProxyType({**MESSAGES, **_object_messages(objects)}),
        unsupported=catalog.UNSUPPORTED,
        unknown_result=unknown_result,
        release=profile.release,
        escapes=profile.release >= 37,
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
