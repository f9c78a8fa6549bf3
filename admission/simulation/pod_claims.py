"""The claims that `pkg/controller/resourceclaim` (v1.37.1) makes from templates, for gated pods too.

A pod's own claim is made for the pod. One that the pod's PodGroup has, too, by the same name and template, is made once
for the group, with the gate DRAWorkloadResourceClaims; all of its pods use it
(`k8s.io/dynamic-resource-allocation/resourceclaim`, BindTo).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from admission.api.kubernetes import meta
from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.storage import persistent_volumes
from admission.api.storage.persistent_volumes import VolumeClaim
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import Uid
from admission.simulation import in_memory
from admission.workloads.kinds import podgroup


def with_claims(snapshot: Snapshot, parents: Mapping[str, Mapping[str, Parent]]) -> Snapshot:
    """Create the claims that the pods lack. parents: as in a snapshot; the PodGroups among them may have claims."""
    groups = parents.get(podgroup.GANGS.key, {})
    known_claims = dict(snapshot.claims)
    completed = {}
    for uid, pod in snapshot.pods.items():
        generated = dict(pod.generated_claims)
        group = groups.get(f"{pod.meta.namespace}/{pod.group}")
        for claim in pod.claims:
            template = snapshot.templates.get(f"{pod.meta.namespace}/{claim.template}")
            if pod.finished or claim.template is None or claim.name in generated:
                continue
            if group is not None and claim in group.claims and claim.name in group.generated_claims:
                generated[claim.name] = group.generated_claims[claim.name]
            elif template is not None:
                owner = pod if group is None or claim not in group.claims else group
                created = _claim_of(owner, claim.name, template)
                known_claims.setdefault(created.meta.key, created)
                generated[claim.name] = created.meta.name
        completed[uid] = replace(pod, generated_claims=generated)
    for pod in completed.values():
        known_claims |= _with_consumer(pod, known_claims)
    return replace(snapshot, pods=completed, claims=known_claims)


def with_ephemeral(snapshot: Snapshot, bodies: Iterable[Json]) -> Snapshot:
    """Create the persistent volume claims of ephemeral volumes that the pods lack. bodies: of the snapshot's pods.

    One that was made for a pod of the same name that is not in the snapshot stands for that of its successor.
    """
    storage = snapshot.storage
    if storage is None:
        return snapshot
    default = next((one.meta.name for one in storage.classes.values() if one.is_default), None)
    made: dict[str, VolumeClaim] = {}
    for body in bodies:
        reader = Reader(body)
        pod = meta.decode(reader)
        for volume in reader.child("spec").children("volumes"):
            if "ephemeral" in volume:
                template = volume.child("ephemeral").object("volumeClaimTemplate")
                name = {"name": f"{pod.name}-{volume.text('name')}", "namespace": pod.namespace}
                claim = persistent_volumes.decode_claim({**template, "metadata": name})
                owner = Owner(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
                uid = Uid(in_memory.uid_of("PersistentVolumeClaim", claim.meta.key))
                made[claim.meta.key] = replace(
                    claim,
                    meta=replace(claim.meta, uid=uid, owners=(owner,)),
                    class_name=default if claim.class_name is None else claim.class_name,
                )
    if not made:
        return snapshot
    kept = {key: _inherited(claim, made.get(key), snapshot) for key, claim in storage.claims.items()}
    return replace(snapshot, storage=replace(storage, claims={**made, **kept}))


def _inherited(claim: VolumeClaim, made: VolumeClaim | None, snapshot: Snapshot) -> VolumeClaim:
    """Return a claim with the owner of the one that would be made, if its own owner is a pod that is not there."""
    owner = claim.meta.controller
    if made is None or owner is None or owner.kind != "Pod" or owner.uid in snapshot.pods:
        return claim
    return replace(claim, meta=replace(claim.meta, owners=made.meta.owners))


def notes(before: Snapshot, after: Snapshot) -> list[str]:
    """Return what to know of claims that were created for PodGroups. before: the snapshot without them."""
    owners = [claim.meta.controller for key, claim in after.claims.items() if key not in before.claims]
    groups = sorted({owner.name for owner in owners if owner is not None and owner.kind == "PodGroup"})
    return [
        f"PodGroup {name}: its claims are made once for all of its pods, which takes the gate"
        " DRAWorkloadResourceClaims, off by default; without it each pod gets claims of its own"
        for name in groups
    ]


def _with_consumer(pod: Pod, known_claims: Mapping[str, Claim]) -> dict[str, Claim]:
    """Return a bound pod's allocated claims with the pod among their consumers, which the input may leave out."""
    if not pod.node or pod.finished:
        return {}
    claims = (known_claims.get(f"{pod.meta.namespace}/{pod.claim_name(claim)}") for claim in pod.claims)
    return {
        claim.meta.key: replace(claim, reserved_for=(*claim.reserved_for, pod.meta.uid))
        for claim in claims
        if claim is not None and claim.allocation is not None and pod.meta.uid not in claim.reserved_for
    }


def _claim_of(owner: Pod | Parent, name: str, template: ClaimTemplate) -> Claim:
    meta = owner.meta
    version, kind = "v1", "Pod"
    if isinstance(owner, Parent):
        version, kind = f"{podgroup.GANGS.group}/{podgroup.GANGS.versions[0]}", podgroup.GANGS.kind
    claim_meta = Meta(
        name=f"{meta.name}-{name}",
        namespace=meta.namespace,
        uid=in_memory.uid_of("ResourceClaim", f"{meta.uid}/{name}"),
        annotations={"resource.kubernetes.io/pod-claim-name": name},
        owners=(Owner(api_version=version, kind=kind, name=meta.name, uid=meta.uid, controller=True),),
        created=meta.created,
    )
    return Claim(meta=claim_meta, spec=template.spec)
