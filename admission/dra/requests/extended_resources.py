"""Extended resources served by DRA: the claim that kube-scheduler creates for a pod that requests `example.com/gpu`.

A DeviceClass offers a resource by spec.extendedResourceName, and every class one named
`deviceclass.resource.kubernetes.io/<class>`. On a node whose device plugin has the resource in allocatable the plugin
serves it; on every other node devices do, by one claim per pod, last among its claims. Mirrors
pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go of kubernetes v1.36.3 and v1.37.1; its
behaviour was also observed on real control planes (tests/e2e/test_kubernetes_extended_resources.py).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from admission.api.kubernetes.claims import Claim, ClaimSpec, DeviceRequest, Request
from admission.api.kubernetes.devices import DeviceClass
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Container, Pod, Stage
from admission.api.snapshot import Snapshot, Version, changed
from admission.api.values import names
from admission.api.values.names import Uid

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that kube-scheduler creates."""

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""The prefix of the resource that every class offers under its own name."""


def class_of(resource: str, classes: Mapping[str, DeviceClass]) -> str | None:
    """Return the class that offers a resource; of several the newest, then the first by name."""
    if resource.startswith(IMPLICIT):
        name = resource.removeprefix(IMPLICIT)
        return name if name in classes else None
    offers = offering(resource, classes)
    return offers[0] if offers else None


def offering(resource: str, classes: Mapping[str, DeviceClass]) -> list[str]:
    """Return the classes that offer a resource by spec.extendedResourceName; the first one counts."""
    found = [one for one in classes.values() if one.extended_resource == resource]
    return [one.meta.name for one in sorted(found, key=lambda one: (-one.meta.created.timestamp(), one.meta.name))]


def resources_of(containers: Sequence[Container], classes: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the resources of a pod's containers that classes offer, in order of names."""
    wanted = {name for container in containers for name, amount in container.requests if amount > 0 and "/" in name}
    return tuple(sorted(name for name in wanted if class_of(name, classes) is not None))


def spec_of(
    containers: Sequence[Container], classes: Mapping[str, DeviceClass], plugged: Collection[str] = ()
) -> ClaimSpec | None:
    """Return the spec of the claim that kube-scheduler creates if DRA serves these resources; None if none.

    plugged: resources that a device plugin of the node serves, which are not claimed.
    """
    offered = [name for name in resources_of(containers, classes) if name not in plugged]
    if not offered:
        return None
    requests = (request for name in offered for request in _requests(name, containers, class_of(name, classes) or ""))
    return ClaimSpec(requests=tuple(sorted(requests, key=lambda request: request.name)))


def claim_of(pod: Pod, classes: Mapping[str, DeviceClass], plugged: Collection[str] = ()) -> Claim | None:
    """Return the claim that kube-scheduler creates if DRA serves the pod's resources; None if it creates none.

    plugged: resources that a device plugin of the node serves.
    """
    spec = spec_of(pod.containers, classes, plugged)
    if spec is None:
        return None
    return Claim(
        meta=Meta(
            name=f"{pod.meta.name}-extended-resources",
            namespace=pod.meta.namespace,
            uid=names.extended_claim(pod.meta.uid or Uid(pod.meta.key)),
        ),
        spec=spec,
    )


def index_claims(snapshot: Snapshot) -> Mapping[Uid, Claim]:
    """Return every claim by its UID, since a claim created later under the same name is another one.

    Claims that kube-scheduler has created for extended resources are also under `names.extended_claim` of their pods.
    """
    return Index.from_snapshot(snapshot).claims


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """`index_claims` of successive snapshots: only what changed is indexed again.

    claims: the result of `index_claims`. holders: by pod, the keys of the claims reserved for it, in order.

    Several indexes may follow one, so each is built from an earlier one instead of being declared over
    `admission.incremental`, which follows one history. The law is tested in `tests/property/test_cluster_state.py`.
    """

    snapshot: Snapshot
    claims: Version[Uid, Claim]
    holders: Version[Uid, tuple[str, ...]]

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, before: Self | None = None) -> Self:
        """Index a snapshot. before: the index of an earlier one."""
        known = before.snapshot if before is not None else Snapshot()
        keys, pods = changed(known.claims, snapshot.claims), changed(known.pods, snapshot.pods)
        if before is not None and not keys and not pods:
            return before
        claims = Version(before.claims if before is not None else None)
        holders = Version(before.holders if before is not None else None)
        concerned = dict.fromkeys(pods)
        for key in keys:
            claim = known.claims.get(key)
            if claim is not None:
                concerned |= dict.fromkeys(_users(claim))
                _remove(key, claim, claims, holders)
        for key in keys:
            claim = snapshot.claims.get(key)
            if claim is not None:
                concerned |= dict.fromkeys(_users(claim))
                claims.put(claim.meta.uid, claim)
                for user in _users(claim):
                    holders.put(user, tuple(sorted((*holders.get(user, ()), key))))
        for pod in concerned:
            uid = names.extended_claim(pod)
            claim = _made_for(pod, snapshot, holders)
            if claim is not None:
                claims.put(uid, claim)
            elif uid in claims:
                claims.drop(uid)
        return cls(snapshot=snapshot, claims=claims, holders=holders)


def _users(claim: Claim) -> set[Uid]:
    return {Uid(uid) for uid in claim.reserved_for}


def _remove(key: str, claim: Claim, claims: Version[Uid, Claim], holders: Version[Uid, tuple[str, ...]]) -> None:
    if claims.get(claim.meta.uid) is claim:
        claims.drop(claim.meta.uid)
    for user in _users(claim):
        left = tuple(one for one in holders[user] if one != key)
        if left:
            holders.put(user, left)
        else:
            holders.drop(user)


def _made_for(uid: Uid, snapshot: Snapshot, holders: Mapping[Uid, tuple[str, ...]]) -> Claim | None:
    """Return the claim that kube-scheduler has created for a pod's extended resources; of several the last by name.

    Every client that may write a claim can set its annotation and owner as kube-scheduler does, so these prove nothing.
    But only kube-scheduler reserves claims, and but for this claim only for pods that name them. For a deleted pod the
    annotation and owner are trusted, until the claim is deleted as well.
    """
    pod = snapshot.pods.get(uid)
    # Fast path: most pods request none.
    if pod is not None and not pod.containers:
        return None
    reserved = (snapshot.claims[key] for key in reversed(holders.get(uid, ())))
    return next(
        (one for one in reserved if (_is_annotated_for(one, uid) if pod is None else _is_made_for(one, pod))), None
    )


def _is_made_for(claim: Claim, pod: Pod) -> bool:
    if claim.meta.namespace != pod.meta.namespace:
        return False
    return claim.meta.name not in {pod.claim_name(named) for named in pod.claims}


def _is_annotated_for(claim: Claim, uid: Uid) -> bool:
    owner = claim.meta.controller
    return claim.meta.annotations.get(ANNOTATION) == "true" and owner is not None and owner.uid == uid


def plugged(node: Node | None, resources: Iterable[str]) -> frozenset[str]:
    """Return the resources that a device plugin of the node serves; none of a node that is not there."""
    allocatable = (node.allocatable if node is not None else None) or {}
    return frozenset(name for name in resources if allocatable.get(name, 0) > 0)


def by_resource(spec: ClaimSpec, containers: Sequence[Container]) -> dict[str, ClaimSpec]:
    """Return the requests of a claim that was made for extended resources, by the resource that each is for.

    Device plugins serve what is not in the result. Requests of other names, which kube-scheduler makes for no resource
    of these containers, are left out.
    """
    resource_of = {
        f"container-{at}-request-{place}": resource
        for at, container in enumerate(containers)
        for place, (resource, _) in enumerate(container.requests)
    }
    found: dict[str, list[Request]] = {}
    for request in spec.requests:
        if request.name in resource_of:
            found.setdefault(resource_of[request.name], []).append(request)
    return {resource: ClaimSpec(requests=tuple(requests)) for resource, requests in found.items()}


def _requests(resource: str, containers: Sequence[Container], device_class: str) -> list[Request]:
    """Return the requests for one resource.

    Each container that runs to the end of the pod has its own. An init container that ends uses the devices of the
    containers that start after it; of what init containers need beyond that, only the largest part is requested.
    """
    needs = [dict(container.requests).get(resource, 0) for container in containers]
    permanent = [
        need if container.stage is not Stage.INIT else 0 for need, container in zip(needs, containers, strict=True)
    ]
    found = [_request(at, count, resource, containers, device_class) for at, count in enumerate(permanent) if count]
    extra = {
        at: need - sum(permanent[at:])
        for at, (need, container) in enumerate(zip(needs, containers, strict=True))
        if container.stage is Stage.INIT
    }
    most = max(extra, key=lambda at: (extra[at], -at), default=None)
    if most is not None and extra[most] > 0:
        found.append(_request(most, extra[most], resource, containers, device_class))
    return found


def _request(at: int, count: int, resource: str, containers: Sequence[Container], device_class: str) -> Request:
    place = [name for name, _ in containers[at].requests].index(resource)
    name = f"container-{at}-request-{place}"
    return Request(name=name, alternatives=(DeviceRequest(name=name, device_class=device_class, count=count),))
