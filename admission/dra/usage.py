"""Which devices are in use, in layers: a layer can be laid over another for a "what if", and committed or dropped."""

from collections.abc import Hashable, Iterable

from admission.api.devices import DeviceId
from admission.dra import contents
from admission.dra.contents import Use
from admission.dra.takings import Share, Taking
from admission.dra.traits import Trait
from admission.dra.worlds import World


class Usage:
    """Devices that claims have for themselves, and shares of others. A layer changes nothing below it."""

    __slots__ = ("_below", "_changes", "_shares", "_taken", "_token")

    def __init__(self, below: "World | Usage") -> None:
        self._below = below
        self._taken: set[DeviceId] = set()
        self._shares: dict[DeviceId, list[Share]] = {}
        self._token = object()
        self._changes = 0

    @property
    def stamp(self) -> Hashable:
        """Return what is equal only as long as nothing changes, here and below."""
        below = self._below
        return (self._token, self._changes, below.stamp if isinstance(below, Usage) else below.token)

    def add(self, given: Iterable[Taking]) -> None:
        """Use devices, and shares of devices."""
        self._changes += 1
        for taking in given:
            if taking.shared:
                self._shares.setdefault(taking.device, []).append(taking.share)
            else:
                self._taken.add(taking.device)

    def remove(self, given: Iterable[Taking]) -> None:
        """Give back what was added to this layer last."""
        self._changes += 1
        for taking in given:
            if not taking.shared:
                self._taken.discard(taking.device)
                continue
            self._shares[taking.device].pop()
            if not self._shares[taking.device]:
                del self._shares[taking.device]

    def commit(self) -> None:
        """Move everything into the layer below, which must not be a world."""
        assert isinstance(self._below, Usage)  # noqa: S101 - worlds are frozen
        self._below.add(Taking(device) for device in self._taken)
        self._below.add(Taking(device, shared=True, share=s) for device, found in self._shares.items() for s in found)
        self._taken.clear()
        self._shares.clear()
        self._changes += 1

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether a claim has the device for itself."""
        if device in self._taken:
            return True
        below = self._below
        return below.is_taken(device) if isinstance(below, Usage) else device in below.taken

    def shares_of(self, device: DeviceId) -> list[Share]:
        """Return what the shares of a device consume."""
        below = self._below
        if isinstance(below, Usage):
            found = below.shares_of(device)
        else:
            found = [shared.share for shared in below.shares.get(device, ())]
        return [*found, *self._shares.get(device, ())]

    def is_used(self, device: DeviceId) -> bool:
        """Return whether the device is in use in any way."""
        return self.is_taken(device) or bool(self.shares_of(device))

    def use_of(self, device: DeviceId, trait: Trait) -> Use:
        """Return the use that is made of a device."""
        if self.is_taken(device):
            return contents.TAKEN
        if not trait.shared and not self.has_shares:
            return contents.FREE
        shares = self.shares_of(device)
        return contents.shared_use(trait, shares) if shares else contents.FREE

    @property
    def has_any(self) -> bool:
        """Whether any layer over the world has something."""
        return bool(self._taken or self._shares) or (isinstance(self._below, Usage) and self._below.has_any)

    @property
    def has_shares(self) -> bool:
        """Whether any device has shares at all."""
        if self._shares:
            return True
        below = self._below
        return below.has_shares if isinstance(below, Usage) else bool(below.shares)


class Beside(Usage):
    """What others than one claim use in a world. claim: `namespace/name`."""

    __slots__ = ("_claim", "_world")

    def __init__(self, world: World, claim: str) -> None:
        super().__init__(world)
        self._world = world
        self._claim = claim

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether another claim has the device for itself."""
        holder = self._world.taken.get(device)
        return holder is not None and holder.claim != self._claim

    def shares_of(self, device: DeviceId) -> list[Share]:
        """Return what the shares of others consume."""
        return [shared.share for shared in self._world.shares.get(device, ()) if shared.holder.claim != self._claim]
