"""The domains of attributes that manifests name without one: those of the driver, as far as the input tells it."""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from admission.conversion import selectors
from admission.conversion.equivalents import Object, items


@dataclass(slots=True)
class Domains:
    """The domains by device class; drivers: all that the input names anywhere."""

    by_class: dict[str, str] = field(default_factory=dict)
    drivers: set[str] = field(default_factory=set)

    def of(self, text: str, class_name: Any) -> str | None:
        """Return the domain of a selector: of the driver that it or its class asks for, or the only one there is."""
        own = [*map(selectors.domain_of, selectors.drivers(text)), *selectors.domains(text)]
        if own:
            return own[0]
        if isinstance(class_name, str) and class_name in self.by_class:
            return self.by_class[class_name]
        return next(iter(self.drivers)) if len(self.drivers) == 1 else None


def of_input(objects: Iterable[Object]) -> Domains:
    """Return the domains that the classes and slices of the input tell, in any version."""
    found = Domains()
    for obj in objects:
        spec = obj.get("spec")
        match obj.get("kind"):
            case "ResourceClass":
                _note(found, obj, obj.get("driverName"))
            case "DeviceClass":
                for _, selector in items(spec, "selectors", ""):
                    cel = selector.get("cel")
                    text = cel.get("expression") if isinstance(cel, MutableMapping) else None
                    for driver in selectors.drivers(text) if isinstance(text, str) else ():
                        _note(found, obj, driver)
            case "ResourceSlice" if isinstance(spec, MutableMapping):
                _note(found, None, spec.get("driver"))
            case _:
                pass
    return found


def _note(domains: Domains, device_class: Object | None, driver: Any) -> None:
    if not isinstance(driver, str) or not driver:
        return
    domain = selectors.domain_of(driver)
    domains.drivers.add(domain)
    metadata = device_class.get("metadata") if device_class is not None else None
    if isinstance(metadata, MutableMapping):
        domains.by_class.setdefault(str(metadata.get("name")), domain)
