"""The persistent volume claims of a pod, as kube-scheduler finds them before it looks at any node.

As PreFilter of VolumeBinding, VolumeZone and VolumeRestrictions (`pkg/scheduler/framework/plugins`, v1.37).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.pod_volumes import DRIVERS, NOT_MIGRATED, PodVolume
from admission.api.storage.persistent_volumes import PersistentVolume, VolumeClaim
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import Uid
from admission.filters.refusal import Refusal, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaims:
    """The claims of one pod. refusal: why it is bound to no node. bound: its volumes, each with its claim.

    waiting: claims whose volume is chosen or made with the pod's node. unjudged: its volumes of which too little is
    known, as people read them.
    """

    refusal: Refusal | None = None
    bound: tuple[tuple[VolumeClaim, PersistentVolume], ...] = ()
    waiting: tuple[VolumeClaim, ...] = ()
    unjudged: tuple[str, ...] = ()


CsiVolume = tuple[str, str]
"""Driver and handle of a volume."""


class SharedVolumes(NamedTuple):
    """What several pods of a gang use: volumes, also such as others use too, and claims that are not bound."""

    volumes: frozenset[CsiVolume] = frozenset()
    claims: frozenset[str] = frozenset()


def claims_of(pod: Pod) -> Iterator[tuple[PodVolume, str]]:
    """Yield the volumes of a pod that have a claim, with the claim's key."""
    for volume in pod.rules.volumes:
        name = volume.claim_of(pod.meta.name)
        if name:
            yield volume, f"{pod.meta.namespace}/{name}"


def resolve(pod: Pod, storage: Storage) -> PodClaims:
    """Return the claims of a pod."""
    return resolve_named(claims_of(pod), pod.meta.uid, storage)


def resolve_named(named: Iterable[tuple[PodVolume, str]], pod: Uid, storage: Storage) -> PodClaims:
    """Return the claims of a pod. named: its volumes that have one, each with the claim's key."""
    bound: list[tuple[VolumeClaim, PersistentVolume]] = []
    waiting: list[VolumeClaim] = []
    unjudged: list[str] = []
    for volume, key in named:
        claim = storage.claims.get(key)
        problem = _problem(pod, volume, claim)
        # Claims of pods that do not exist yet may be made with them, after those of pods of the same names.
        is_open = claim is None or (problem and _is_of_pod(volume, claim))
        if is_open and (names.is_expected(pod) or (claim is None and not storage.is_whole)):
            unjudged.append(volume.text)
        elif claim is None or problem:
            return PodClaims(refusal=Refusal(Rule.CLAIM, key.partition("/")[2], text=problem))
        elif claim.is_bound:
            found = storage.volumes.get(claim.volume)
            if found is not None:
                bound.append((claim, found))
            elif storage.is_whole:
                text = f"is bound to persistent volume {claim.volume}, which does not exist"
                return PodClaims(refusal=Refusal(Rule.CLAIM, claim.meta.name, text=text))
            else:
                unjudged.append(volume.text)
        elif claim.volume or not _waits(claim, storage):
            if storage.is_whole:
                return PodClaims(refusal=Refusal(Rule.CLAIM, claim.meta.name, text="is not bound to a volume yet"))
            unjudged.append(volume.text)
        else:
            waiting.append(claim)
    return PodClaims(bound=tuple(bound), waiting=tuple(waiting), unjudged=tuple(unjudged))


def _waits(claim: VolumeClaim, storage: Storage) -> bool:
    found = storage.classes.get(claim.class_name or "")
    return found is not None and found.waits


def _problem(pod: Uid, volume: PodVolume, claim: VolumeClaim | None) -> str:
    """Return why a claim keeps a pod from every node, whatever it is bound to; empty text if it does not."""
    if claim is None:
        return "is still to be made for the pod" if volume.is_ephemeral else "does not exist"
    if claim.is_lost:
        return f"has lost persistent volume {claim.volume}"
    if claim.meta.deleted is not None:
        return "is being deleted"
    owner = claim.meta.controller
    if volume.is_ephemeral and (owner is None or owner.uid != pod):
        return "was not made for the pod, though it has the name of its ephemeral volume"
    return ""


def _is_of_pod(volume: PodVolume, claim: VolumeClaim) -> bool:
    """Return whether a claim was made for an ephemeral volume of a pod, and goes with it."""
    owner = claim.meta.controller
    return volume.is_ephemeral and owner is not None and owner.kind == "Pod"


def csi_volumes(named: Iterable[tuple[PodVolume, str]], storage: Storage, *, migrates: bool) -> Iterator[CsiVolume]:
    """Yield the volumes of a pod that count. named: its volumes, each with the key of its claim.

    migrates: whether drivers serve in-tree disks on the node.
    """
    for volume, key in named:
        if volume.disk is not None:
            found = volume.disk.handle() if migrates else ("", "")
        else:
            found = _of_claim(key, storage, migrates=migrates)
        if all(found):
            yield found


def _of_claim(key: str, storage: Storage, *, migrates: bool) -> CsiVolume:
    claim = storage.claims.get(key)
    if claim is None:
        return "", ""
    volume = storage.volumes.get(claim.volume)
    if volume is not None:
        return volume.csi_volume if volume.driver or migrates else ("", "")
    of_class = storage.classes.get(claim.class_name or "")
    plugin = of_class.provisioner if of_class is not None else ""
    if plugin in NOT_MIGRATED or (plugin in DRIVERS and not migrates):
        return "", ""
    # No volume has such a handle: one that is still to be made is another than all others.
    return DRIVERS.get(plugin, plugin), f"\0{key}"
