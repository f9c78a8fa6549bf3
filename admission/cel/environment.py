"""What a text may refer to: variables, object types, type names and functions.

A device selector sees `device`; a ClaimPolicy's rule other variables. Functions differ by the release and mode of
Kubernetes' compiler that is answered for.
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
    """Which compiler of Kubernetes is answered for (k8s.io/dynamic-resource-allocation/cel, 1.36 and 1.37).

    release: the minor version; stored: the scheduler's environment, else the stricter one in which the API server
    validates new objects; lists: the gate DRAListTypeAttributes; consumable: the gate DRAConsumableCapacity.
    """

    release: int = 36
    stored: bool = True
    lists: bool = False
    consumable: bool = True

    @property
    def reads_lists(self) -> bool:
        """Whether a device may have lists as attributes; elsewhere every selector fails on one that has."""
        return self.lists or self.release >= 37


DEFAULT = Profile()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The names that a text may use.

    objects: fields of object types, by the type's name; unsupported: functions that Kubernetes has and Muster lacks.
    """

    variables: Mapping[str, Type]
    objects: Mapping[str, Mapping[str, Type]]
    functions: Mapping[str, tuple[Overload, ...]]
    types: Mapping[str, Type]
    messages: Mapping[str, Message]
    unsupported: frozenset[str]
    unknown_result: Type = core_types.ANY
    """The type besides the wanted one that a text may have; its value is tested at run time."""
    declared: Mapping[str, DeclaredSize] = field(default_factory=dict)
    """How large the variables may be, for the static cost; what is not declared may be of any size."""
    release: int = 36
    escapes: bool = False
    """Whether fields may be written in backticks."""

    def unknown(self, function: str) -> str:
        """Word the refusal of a function that is not there."""
        message = f"undeclared reference to '{function}' (in container '')"
        if function in self.unsupported:
            return f"{message}: a function of Kubernetes that Muster does not know"
        return message


def for_device(profile: Profile) -> Environment:
    """Return the environment of device selectors, meters' selectors and prices."""
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


def _two_maps(value: DeclaredSize, named: DeclaredSize | None) -> DeclaredSize:
    inner = DeclaredSize(most=_MAX_NAMES, key=DeclaredSize(most=32), value=value, named=named)
    return DeclaredSize(most=_MAX_NAMES, key=DeclaredSize(most=63), value=inner)


_ATTRIBUTE_SIZE = DeclaredSize(most=64)
_DEVICE_SIZES = DeclaredSize(
    fields={
        "driver": DeclaredSize(most=63),
        "allowMultipleAllocations": DeclaredSize(most=1),
        "attributes": _two_maps(_ATTRIBUTE_SIZE, _ATTRIBUTE_SIZE),
        "capacity": _two_maps(DeclaredSize(), None),
    }
)


def for_variables(
    variables: Mapping[str, Type],
    objects: Mapping[str, Mapping[str, Type]],
    unknown_result: Type = core_types.DYN,
    profile: Profile = DEFAULT,
) -> Environment:
    """Return an environment of the given variables and their object types."""
    functions = dict(catalog.FUNCTIONS_37 if profile.release >= 37 else catalog.FUNCTIONS)
    if not (profile.stored or profile.lists):
        del functions["includes"]
    return Environment(
        variables=MappingProxyType(dict(variables)),
        objects=MappingProxyType(dict(objects)),
        functions=MappingProxyType(functions),
        types=_TYPES,
        messages=MappingProxyType({**MESSAGES, **_unknown_messages(objects)}),
        unsupported=catalog.UNSUPPORTED,
        unknown_result=unknown_result,
        release=profile.release,
        escapes=profile.release >= 37,
    )


def _unknown_messages(objects: Mapping[str, Mapping[str, Type]]) -> dict[str, Message]:
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
