"""Preferences of a queue: the kinds of devices that are tried in order for what a claim leaves open."""

from dataclasses import dataclass
from enum import StrEnum

from admission.api.values.decoding import Reader

MOST_KINDS = 16


class WhenCanBorrow(StrEnum):
    """What happens where a gang would start on a kind, but with a loan. Kueue's `flavorFungibility.whenCanBorrow`."""

    BORROW = "Borrow"
    """It starts there; Kueue's MayStopSearch."""
    TRY_NEXT = "TryNext"
    """The other kinds are tried first; Kueue's TryNextFlavor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """Some devices of some device classes. selector: CEL over `device`; None for all of the classes."""

    name: str
    classes: tuple[str, ...]
    selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The kinds in the order in which they are tried. A class that none of them names is left alone."""

    kinds: tuple[DeviceKind, ...]
    when_can_borrow: WhenCanBorrow = WhenCanBorrow.BORROW

    @property
    def classes(self) -> frozenset[str]:
        """Return the device classes that the kinds are about."""
        return frozenset(name for kind in self.kinds for name in kind.classes)


def decode(reader: Reader) -> Preferences:
    """Decode spec.preferences of a Queue."""
    kinds: dict[str, DeviceKind] = {}
    for one in reader.children("kinds"):
        kind = DeviceKind(
            name=one.required("name"), classes=one.texts("deviceClasses"), selector=one.optional("selector")
        )
        if kind.name in kinds:
            one.problem("name", f"{kind.name} is named twice; keep one entry per kind")
        if not kind.classes:
            one.problem("deviceClasses", "is required: the DeviceClasses whose requests the kind serves")
        kinds[kind.name] = kind
    if not 1 <= len(kinds) <= MOST_KINDS:
        reader.problem("kinds", f"has {len(kinds)} entries; give 1 to {MOST_KINDS}, the preferred kind first")
    text = reader.text("whenCanBorrow", WhenCanBorrow.BORROW)
    if text not in set(WhenCanBorrow):
        reader.problem("whenCanBorrow", f"{text!r} is not one of {', '.join(WhenCanBorrow)}")
        text = WhenCanBorrow.BORROW
    return Preferences(kinds=tuple(kinds.values()), when_can_borrow=WhenCanBorrow(text))
