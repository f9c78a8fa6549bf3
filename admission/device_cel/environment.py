"""The environment of an expression over devices: the variable `device`, its type, and the compiler that reads it."""

from dataclasses import dataclass, replace
from functools import lru_cache

from admission.cel import environment
from admission.cel.core import types as core_types
from admission.cel.core.size_estimate import DeclaredSize
from admission.cel.core.types import Type
from admission.cel.environment import Environment

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


@lru_cache(maxsize=32)
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
    declared = environment.for_variables(
        {"device": DEVICE},
        {DEVICE.name: fields},
        attribute,
        release=profile.release,
        without=_left_out(profile),
    )
    return replace(declared, declared={"device": _DEVICE_SIZES})


_LISTS = ("slice", "flatten", "lists.range", "distinct", "reverse", "sort")
"""Functions that came with 1.34, whose API server takes none in new objects that its predecessor could not run."""


def _left_out(profile: Profile) -> tuple[str, ...]:
    """Return the functions of the release that the API server takes from nobody yet."""
    if profile.stored:
        return ()
    too_new = _LISTS if profile.release < 35 else ()
    return too_new if profile.lists else ("includes", *too_new)


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
