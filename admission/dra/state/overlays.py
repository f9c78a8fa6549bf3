"""What is in use in a world that is imagined, as a view of one that is: nothing is copied for it."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from admission.api.kubernetes.devices import DeviceId
from admission.api.values.names import NodeName
from admission.dra.requests.device_use import Holder

Amounts = Mapping[str, int]
"""What there is of each resource."""


class Taken(Mapping[DeviceId, Holder]):
    """The devices that somebody has when some gangs have gone and others have come.

    Where both a gang that stays and one that comes have a device, the one that stays does.
    """

    __slots__ = ("_came", "_gone", "_now")

    def __init__(self, now: Mapping[DeviceId, Holder], gone: Collection[str], came: Mapping[DeviceId, Holder]) -> None:
        self._now = now
        self._gone = gone
        self._came = came

    def __getitem__(self, device: DeviceId) -> Holder:
        holder = self._now.get(device)
        return holder if holder is not None and holder.gang not in self._gone else self._came[device]

    def __contains__(self, device: object) -> bool:
        holder = self._now.get(device)  # type: ignore[call-overload]
        return (holder is not None and holder.gang not in self._gone) or device in self._came

    def __iter__(self) -> Iterator[DeviceId]:
        left = [device for device, holder in self._now.items() if holder.gang not in self._gone]
        yield from left
        yield from self._came.keys() - left

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Return whether anything may be in use: whoever asks that wants to know whether to look at all."""
        return bool(self._now) or bool(self._came)


class Left(Mapping[NodeName, Amounts | None]):
    """What is left of nodes: what is left now and what is given back, but no more than what is left beside others."""

    __slots__ = ("_beside", "_more", "_now")

    def __init__(
        self,
        now: Mapping[NodeName, Amounts | None],
        more: Mapping[NodeName, Amounts],
        beside: Mapping[NodeName, Sequence[Amounts]],
    ) -> None:
        self._now = now
        self._more = more
        self._beside = beside

    def __getitem__(self, node: NodeName) -> Amounts | None:
        left, more = self._now.get(node), self._more.get(node)
        if left is not None and more is not None:
            left = {name: had + more.get(name, 0) for name, had in left.items()}
        for room in self._beside.get(node, ()):
            left = room if left is None else {name: min(had, room.get(name, had)) for name, had in left.items()}
        if left is None and node not in self._now:
            raise KeyError(node)
        return left

    def __iter__(self) -> Iterator[NodeName]:
        yield from self._now
        yield from self._beside.keys() - self._now.keys()

    def __len__(self) -> int:
        return sum(1 for _ in self)
