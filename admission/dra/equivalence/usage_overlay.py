"""The devices in use, as layers over a cluster state: a simulated layer is committed to the one below or dropped."""

from collections.abc import Collection, Container, Hashable, Iterable

from admission.api.kubernetes.devices import DeviceId
from admission.dra.equivalence import node_contents
from admission.dra.equivalence.device_signature import DeviceSignature
from admission.dra.equivalence.node_contents import Use
from admission.dra.requests.device_use import DeviceUse, Share
from admission.dra.state.cluster_state import ClusterState


class AllocatedOverlay:
    """Devices that claims have exclusively, and shares of devices. A layer changes nothing below it but by `commit`."""

    __slots__ = ("_below", "_changes", "_shares", "_taken", "_token")

    def __init__(self, below: "ClusterState | AllocatedOverlay") -> None:
        self._below = below
        self._taken: set[DeviceId] = set()
        self._shares: dict[DeviceId, list[Share]] = {}
        self._token = object()
        self._changes = 0

    @property
    def stamp(self) -> Hashable:
        """Return a value that is equal only as long as nothing changes, here and below."""
        below = self._below
        return (self._token, self._changes, below.stamp if isinstance(below, AllocatedOverlay) else below.token)

    def add(self, given: Iterable[DeviceUse]) -> None:
        """Use devices, and shares of devices."""
        self._changes += 1
        for use in given:
            if use.shared:
                self._shares.setdefault(use.device, []).append(use.share)
            else:
                self._taken.add(use.device)

    def remove(self, given: Iterable[DeviceUse]) -> None:
        """Give back what was added to this layer last."""
        self._changes += 1
        for use in given:
            if not use.shared:
                self._taken.discard(use.device)
                continue
            self._shares[use.device].pop()
            if not self._shares[use.device]:
                del self._shares[use.device]

    def commit(self) -> None:
        """Move everything into the layer below, which must not be a cluster state."""
        assert isinstance(self._below, AllocatedOverlay)  # noqa: S101 - cluster states are frozen
        self._below.add(DeviceUse(device) for device in self._taken)
        self._below.add(
            DeviceUse(device, shared=True, share=s) for device, found in self._shares.items() for s in found
        )
        self._taken.clear()
        self._shares.clear()

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether a claim has the device exclusively."""
        if device in self._taken:
            return True
        below = self._below
        return below.is_taken(device) if isinstance(below, AllocatedOverlay) else device in below.taken

    def shares_of(self, device: DeviceId) -> list[Share]:
        """Return what the shares of a device consume."""
        below = self._below
        if isinstance(below, AllocatedOverlay):
            found = below.shares_of(device)
        else:
            found = [shared.share for shared in below.shares.get(device, ())]
        return [*found, *self._shares.get(device, ())]

    def used(self, devices: Collection[DeviceId]) -> Iterable[DeviceId]:
        """Return those of these devices that are in use, exclusively or shared."""
        below = self._below
        if isinstance(below, AllocatedOverlay):
            found = below.used(devices)
        else:
            found = [device for device in devices if device in below.taken or device in below.shares]
        if not self._taken and not self._shares:
            return found
        own = (device for device in devices if device in self._taken or device in self._shares)
        return dict.fromkeys((*found, *own))

    def takers(self) -> list[Container[DeviceId]]:
        """Return the devices that claims have exclusively, of every layer that has some."""
        own: list[Container[DeviceId]] = [self._taken] if self._taken else []
        below = self._below
        if isinstance(below, AllocatedOverlay):
            return [*own, *below.takers()]
        return [*own, below.taken] if below.taken else own

    def use_of(self, device: DeviceId, signature: DeviceSignature) -> Use:
        """Return the use of a device."""
        if self.is_taken(device):
            return node_contents.TAKEN
        if not signature.shared and not self.has_shares:
            return node_contents.FREE
        shares = self.shares_of(device)
        return node_contents.shared_use(signature, shares) if shares else node_contents.FREE

    @property
    def has_any(self) -> bool:
        """Whether any layer over the cluster state has a device or a share."""
        return bool(self._taken or self._shares) or (isinstance(self._below, AllocatedOverlay) and self._below.has_any)

    @property
    def has_shares(self) -> bool:
        """Whether any device has shares at all."""
        if self._shares:
            return True
        below = self._below
        return below.has_shares if isinstance(below, AllocatedOverlay) else bool(below.shares)


class CombinedOverlay(AllocatedOverlay):
    """The devices in use in a cluster state without those of some claims. claims: `namespace/name` of each."""

    __slots__ = ("_claims", "_cluster")

    def __init__(self, cluster: ClusterState, claims: Container[str]) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._claims = claims

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether another claim has the device exclusively."""
        if device in self._taken:
            return True
        holder = self._cluster.taken.get(device)
        return holder is not None and holder.claim not in self._claims

    def shares_of(self, device: DeviceId) -> list[Share]:
        """Return what the shares of other claims consume."""
        found = (shared for shared in self._cluster.shares.get(device, ()) if shared.holder.claim not in self._claims)
        return [*(shared.share for shared in found), *self._shares.get(device, ())]

    def used(self, devices: Collection[DeviceId]) -> Iterable[DeviceId]:
        """Return those of these devices that other claims use, exclusively or shared."""
        return [device for device in devices if self.is_taken(device) or self.shares_of(device)]

    def takers(self) -> list[Container[DeviceId]]:
        """Return the devices that other claims have exclusively."""
        return [_Others(self)]


class _Others:
    """The devices that claims outside the given ones have exclusively."""

    __slots__ = ("_usage",)

    def __init__(self, usage: CombinedOverlay) -> None:
        self._usage = usage

    def __contains__(self, device: object) -> bool:
        return isinstance(device, DeviceId) and self._usage.is_taken(device)
