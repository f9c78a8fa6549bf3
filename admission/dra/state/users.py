"""The pods that use a claim by the books, found anew only for the gangs of which something changed there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import changed
from admission.api.values.names import GangUid, Uid


class Users:
    """The pods with a seat that use a claim, as the books were the last time."""

    def __init__(self) -> None:
        self._placements: Mapping[GangUid, Placement] = {}
        self._seats: dict[Uid, dict[tuple[GangUid, Uid], None]] = {}
        """By the UIDs of claims, the seats, by gang and pod."""
        self._users: Mapping[Uid, frozenset[Uid]] = {}

    def of(self, placements: Mapping[GangUid, Placement]) -> Mapping[Uid, frozenset[Uid]]:
        """Return the users of every claim, by its UID; of a claim that has the same ones as before the same object."""
        gangs, before, self._placements = changed(self._placements, placements), self._placements, placements
        uids: set[Uid] = set()
        for gang, pod, uid in _uses(before[gang] for gang in gangs if gang in before):
            self._seats[uid].pop((gang, pod), None)
            uids.add(uid)
        for gang, pod, uid in _uses(placements[gang] for gang in gangs if gang in placements):
            self._seats.setdefault(uid, {})[gang, pod] = None
            uids.add(uid)
        if uids:
            users = dict(self._users)
            for uid in uids:
                users[uid] = _same(users.get(uid), [pod for _, pod in self._seats[uid]])
                if not users[uid]:
                    del users[uid], self._seats[uid]
            self._users = users
        return self._users


def _uses(placements: Iterable[Placement]) -> Iterator[tuple[GangUid, Uid, Uid]]:
    """Yield gang, pod and claim wherever a pod with a seat uses a claim."""
    for placement in placements:
        for seat in placement.seats.values():
            for uid in seat.claims:
                yield placement.gang_uid, seat.pod_uid, uid


def _same(known: frozenset[Uid] | None, pods: Sequence[Uid]) -> frozenset[Uid]:
    """Return the pods as a set; that of before, where it is the same."""
    found = frozenset(pods)
    return known if known is not None and known == found else found
