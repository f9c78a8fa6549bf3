"""The catalog of functions: all that Muster implements, by name, and those of Kubernetes that it lacks."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from admission.cel.core import arithmetic, types
from admission.cel.core.declarations import Overload
from admission.cel.library import (
    conversions,
    formats,
    lists,
    networks,
    operators,
    optionals,
    quantities,
    regex,
    semver,
    string_format,
    strings,
    times,
    urls,
)

_LIBRARIES = (
    operators,
    arithmetic,
    conversions,
    strings,
    string_format,
    regex,
    lists,
    optionals,
    times,
    quantities,
    semver,
    networks,
    urls,
    formats,
)


def _by_name(overloads: Iterable[Overload]) -> dict[str, tuple[Overload, ...]]:
    result: dict[str, tuple[Overload, ...]] = {}
    for overload in overloads:
        result[overload.name] = (*result.get(overload.name, ()), overload)
    return result


FUNCTIONS: Mapping[str, tuple[Overload, ...]] = MappingProxyType(
    _by_name(overload for library in _LIBRARIES for overload in library.OVERLOADS)
)

FUNCTIONS_37: Mapping[str, tuple[Overload, ...]] = MappingProxyType(
    {
        **FUNCTIONS,
        **_by_name((*lists.RELEASE_37, *quantities.RELEASE_37)),
        "duration": tuple(one for one in FUNCTIONS["duration"] if one.parameters != (types.INT,)),
    }
)
"""The functions of Kubernetes 1.37."""
