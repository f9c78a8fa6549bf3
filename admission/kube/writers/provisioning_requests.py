"""ProvisioningRequests with their PodTemplates: the real `ports.CapacityRequests`.

A PodTemplate is written before the request that names it, and deleted after it: Cluster Autoscaler leaves out templates
that are missing (ProvisioningRequestClient.FetchPodTemplates). Both belong to the workload of the gang, and templates
to their request as soon as it exists, so the garbage collector deletes what Muster cannot. Templates whose request was
never made, since it was refused or Muster ended in between, are found by their label (`delete_unused`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import structlog

from admission.api.capacity import provisioning_requests
from admission.api.capacity.provisioning_requests import GROUP, KIND, PLURAL, VERSION, ProvisioningRequest
from admission.api.kubernetes import meta, pods
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.api.values.names import Uid
from admission.errors import FixError, GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection, PatchKind
from admission.kube.client.errors import AbsentEndpointError, ExistsError
from admission.kube.writers import pod_patch
from admission.scheduling.capacity.capacity_requests import CapacityRequest, PodSet

log = structlog.get_logger(__name__)

ROOT = f"/apis/{GROUP}/{VERSION}"
CORE = "/api/v1"

OURS = f"{names.MANAGED_BY}={names.FIELD_MANAGER}"
"""The selector of requests and templates that Muster made."""

PER_PAGE = 500

OF_THE_CLUSTER = ("nodeName", "schedulingGates", "hostname", "ephemeralContainers", "priority", "preemptionPolicy")
"""Fields of a pod that its template does not have: they are of the one pod, or follow from others."""

OWN_LABELS = ("batch.kubernetes.io/", "apps.kubernetes.io/", "controller-uid", "job-name", "statefulset.kubernetes.io/")
"""Prefixes of labels by which controllers know their pods; no template has them."""


class ProvisioningRequestWriter:
    """Creates and deletes ProvisioningRequests and their PodTemplates. Every write may be repeated."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, request: CapacityRequest) -> None:
        """Create the PodTemplates, then the request, then make it their owner."""
        names_ = [f"{request.name}-{number}" for number in range(len(request.pod_sets))]
        for name, pod_set in zip(names_, request.pod_sets, strict=True):
            await self._create_template(request, name, pod_set)
        uid = await self._create_request(request, names_)
        owner = Owner(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=request.name, uid=uid)
        for name in names_:
            body = {"metadata": {"ownerReferences": _owner_references([owner])}}
            await self._connection.patch(_template_path(request.namespace, name), body, PatchKind.MERGE)
        log.info("nodes are asked for", request=request.key, gang=request.gang, sets=len(names_))

    async def delete(self, request: ProvisioningRequest) -> None:
        """Delete exactly this request, then its PodTemplates. A no-op for what is gone."""
        try:
            await self._connection.delete(
                _request_path(request.meta.namespace, request.meta.name), _exactly(request.meta)
            )
            log.info("nodes are no longer asked for", request=request.meta.key)
        except AbsentEndpointError:
            raise
        except GoneError:
            log.debug("the request is gone", request=request.meta.key)
        for name in request.templates:
            # Templates of others are never among them: their names are made of the request's.
            if name.startswith(f"{request.meta.name}-"):
                try:
                    await self._connection.delete(_template_path(request.meta.namespace, name))
                except GoneError:
                    log.debug("the template is gone", template=name)

    async def found(self) -> Sequence[ProvisioningRequest]:
        """Return the requests that Muster made, without their templates; none where the kind is not served."""
        try:
            return [ProvisioningRequest(meta=one) for one in await self._list(f"{ROOT}/{PLURAL}")]
        except AbsentEndpointError:
            return ()

    async def delete_unused(self, kept: Collection[str]) -> Sequence[str]:
        """Delete the PodTemplates that Muster made, but for those of requests with these keys."""
        gone: list[str] = []
        try:
            found = await self._list(f"{CORE}/podtemplates")
        except FixError as error:
            log.warning("PodTemplates without a request are not looked for", error=str(error))
            raise
        for one in found:
            if one.key.rpartition("-")[0] in kept:
                continue
            try:
                await self._connection.delete(_template_path(one.namespace, one.name), _exactly(one))
            except GoneError:
                log.debug("the template is gone", template=one.key)
            gone.append(one.key)
            log.info("the template of no request is deleted", template=one.key, gang=one.annotations[names.GANG])
        return gone

    async def _list(self, collection: str) -> list[Meta]:
        """Return what Muster made of a kind in all namespaces."""
        async with aclosing(self._connection.pages(collection, limit=PER_PAGE, labels=OURS)) as pages:
            listed = [meta.decode(Reader(item)) async for page in pages for item in page["items"]]
        return [one for one in listed if provisioning_requests.is_of_muster(one) and one.deleted is None]

    async def _create_template(self, request: CapacityRequest, name: str, pod_set: PodSet) -> None:
        stored = await self._connection.get(paths.within(CORE, request.namespace, "pods", pod_set.pod.meta.name))
        fresh = pods.decode(stored)
        if fresh.meta.uid != pod_set.pod.meta.uid:
            raise GoneError(f"pod {fresh.meta.key} with UID {pod_set.pod.meta.uid} is gone; another has its name")
        body = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": _metadata(request, name),
            "template": template_of(stored, fresh, pod_set.labels),
        }
        try:
            await self._connection.post(paths.within(CORE, request.namespace, "podtemplates"), body)
        except ExistsError:
            log.debug("the template is there already", template=f"{request.namespace}/{name}")

    async def _create_request(self, request: CapacityRequest, templates: Iterable[str]) -> Uid:
        sets = [
            {"count": pod_set.count, "podTemplateRef": {"name": name}}
            for name, pod_set in zip(templates, request.pod_sets, strict=True)
        ]
        spec: dict[str, Any] = {"provisioningClassName": request.provisioning_class, "podSets": sets}
        if request.parameters:
            spec["parameters"] = dict(request.parameters)
        metadata = {**_metadata(request, request.name), "annotations": dict(request.annotations)}
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": spec}
        try:
            made = await self._connection.post(paths.within(ROOT, request.namespace, PLURAL), body)
        except ExistsError:
            made = await self._connection.get(_request_path(request.namespace, request.name))
        return provisioning_requests.decode(made).meta.uid


def template_of(stored: Mapping[str, Any], pod: Pod, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the template of a pod as kube-scheduler will see it: without gates, kept to nodes with these labels."""
    spec = {name: value for name, value in stored["spec"].items() if name not in OF_THE_CLUSTER}
    if labels:
        affinity = dict(spec.get("affinity") or {})
        opened = pod_patch.opened(pod, pod_patch.with_labels(labels))["spec"]["affinity"]["nodeAffinity"]
        affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), **opened}
        spec["affinity"] = affinity
    kept = {key: value for key, value in pod.meta.labels.items() if not key.startswith(OWN_LABELS)}
    return {"metadata": {"labels": kept}, "spec": spec}


def _metadata(request: CapacityRequest, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": request.namespace,
        "labels": {names.MANAGED_BY: names.FIELD_MANAGER},
        "annotations": {names.GANG: request.gang},
        "ownerReferences": _owner_references(request.owners),
    }


def _exactly(one: Meta) -> dict[str, Any]:
    """Return the options by which this object is deleted, and none that has its name since."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": one.uid}}


def _owner_references(owners: Iterable[Owner]) -> list[dict[str, str]]:
    return [{"apiVersion": one.api_version, "kind": one.kind, "name": one.name, "uid": one.uid} for one in owners]


def _request_path(namespace: str, name: str) -> str:
    return paths.within(ROOT, namespace, PLURAL, name)


def _template_path(namespace: str, name: str) -> str:
    return paths.within(CORE, namespace, "podtemplates", name)
