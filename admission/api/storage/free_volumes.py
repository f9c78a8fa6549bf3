"""The unbound persistent volumes of one class, found by the labels of a node that may use them."""

from collections.abc import Iterable, Mapping
from itertools import chain

from admission.api.storage.persistent_volumes import PersistentVolume, VolumeClaim


class FreeVolumes:
    """The volumes, the smallest first. Of several thousand local ones only those of a node are looked at for it."""

    __slots__ = ("_anywhere", "_by_label", "_known", "_read", "volumes")

    def __init__(self, volumes: Iterable[PersistentVolume]) -> None:
        self.volumes = tuple(sorted(volumes, key=_order))
        self._anywhere: list[PersistentVolume] = []
        self._by_label: dict[str, dict[str, list[PersistentVolume]]] = {}
        for one in self.volumes:
            places = _places(one)
            for key, value in places:
                self._by_label.setdefault(key, {}).setdefault(value, []).append(one)
            if not places:
                self._anywhere.append(one)
        affinities = [one.affinity for one in self.volumes if one.affinity is not None]
        self._read = sorted({rule.key for each in affinities for term in each.terms for rule in term.expressions})
        self._known: dict[tuple[str | None, ...], tuple[PersistentVolume, ...]] = {}

    def usable(self, labels: Mapping[str, str]) -> tuple[PersistentVolume, ...]:
        """Return the volumes that a node with these labels can use, the smallest first."""
        key = tuple(labels.get(name) for name in self._read)
        known = self._known.get(key)
        if known is None:
            found = chain(
                self._anywhere,
                *(values.get(labels[name], ()) for name, values in self._by_label.items() if name in labels),
            )
            usable = (one for one in found if one.affinity is None or one.affinity.matches("", labels))
            known = self._known[key] = tuple(sorted(usable, key=_order))
        return known

    def undecided(self, claim: VolumeClaim, selected_by: frozenset[str]) -> bool:
        """Return whether kube-scheduler may give a claim one of several volumes that differ: those of equal size.

        It takes them as they come. selected_by: the labels of volumes that claims select by.
        """
        sizes: dict[int, dict[tuple[str, str], set[object]]] = {}
        kinds: dict[int, set[object]] = {}
        for one in self.volumes:
            if may_have(claim, one):
                labels = tuple((key, one.meta.labels.get(key)) for key in sorted(selected_by))
                kind = (one.affinity, one.access_modes, labels)
                kinds.setdefault(one.capacity, set()).add(kind)
                for place in _places(one) or [("", "")]:
                    sizes.setdefault(one.capacity, {}).setdefault(place, set()).add(kind)
        return any(_overlap(places) for size, places in sizes.items() if len(kinds[size]) > 1)


def may_have(claim: VolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether an unbound volume will do for a claim of its class, wherever it can be used."""
    return (
        fits(claim, volume)
        and (claim.selector is None or claim.selector.matches(volume.meta.labels))
        and claim.access_modes <= volume.access_modes
    )


def fits(claim: VolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether a volume has what a claim asks even of one that is kept for it."""
    return (
        volume.capacity >= (claim.size or 0)
        and volume.mode == claim.mode
        and volume.attributes_class == claim.attributes_class
        and volume.meta.deleted is None
    )


def _order(volume: PersistentVolume) -> tuple[int, str]:
    return volume.capacity, volume.meta.name


def _places(volume: PersistentVolume) -> list[tuple[str, str]]:
    """Return the values of one label one of which a node of the volume has; nothing if no single label tells."""
    terms = volume.affinity.terms if volume.affinity is not None else ()
    if len(terms) != 1:
        return []
    named = next((one for one in terms[0].expressions if one.operator == "In" and one.values), None)
    return [(named.key, value) for value in dict.fromkeys(named.values)] if named is not None else []


def _overlap(places: Mapping[tuple[str, str], set[object]]) -> bool:
    """Return whether one node may be able to use two volumes that differ. places: by label and value, their kinds."""
    return len({key for key, _ in places}) > 1 or any(len(kinds) > 1 for kinds in places.values())
