"""Validation of the volumes of a pod, and of where its containers mount them.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), for the sources that
schedulers read or that most pods use; of other sources only that there is no second one.
"""

from collections.abc import Callable, Mapping

from admission.api.validation import fields, storage
from admission.api.values import formats
from admission.api.values.decoding import Reader

SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
"""In the order in which the API server looks for them."""

OF_CLAIMS = ("persistentVolumeClaim", "ephemeral")
"""The sources whose volumes may be block devices."""


def validate(spec: Reader) -> dict[str, str]:
    """Judge the volumes of a pod's spec; return the source of each by its name."""
    found: dict[str, str] = {}
    for volume in spec.children("volumes"):
        source = storage.one_source(volume, SOURCES) or "emptyDir"
        if source in _SOURCES and source in volume:
            _SOURCES[source](volume.child(source))
        name = fields.needed(volume, "name")
        if name and (message := formats.label(name)):
            volume.problem("name", f"Invalid value: {message}")
        if name in found:
            volume.problem("name", f"Duplicate value: {name!r}")
        found[name] = source
    return found


def validate_mounts(container: Reader, volumes: Mapping[str, str], *, all_known: bool) -> None:
    """Judge where a container has its pod's volumes. volumes: the source of each by its name; all_known: of all."""
    mounts, devices = list(container.children("volumeMounts")), list(container.children("volumeDevices"))
    device_names = {device.text("name") for device in devices}
    device_paths = {device.text("devicePath") for device in devices}
    paths: set[str] = set()
    for mount in mounts:
        name, path = _name(mount, volumes, all_known=all_known), fields.needed(mount, "mountPath")
        if path in paths:
            fields.invalid(mount, "mountPath", "must be unique")
        if name in device_names:
            fields.invalid(mount, "name", "must not already exist in volumeDevices")
        if path in device_paths:
            fields.invalid(mount, "mountPath", "must not already exist as a path in volumeDevices")
        paths.add(path)
        for field in ("subPath", "subPathExpr"):
            _relative(mount, field)
        if mount.text("subPath") and mount.text("subPathExpr"):
            fields.invalid(mount, "subPathExpr", "subPathExpr and subPath are mutually exclusive")
    _devices(devices, volumes, all_known=all_known)


def _devices(devices: list[Reader], volumes: Mapping[str, str], *, all_known: bool) -> None:
    names, paths = set[str](), set[str]()
    for device in devices:
        name, path = _name(device, volumes, all_known=all_known), fields.needed(device, "devicePath")
        if volumes.get(name, OF_CLAIMS[0]) not in OF_CLAIMS:
            message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            fields.invalid(device, "name", message)
        if name and name in names:
            fields.invalid(device, "name", "must be unique")
        if path in paths:
            fields.invalid(device, "devicePath", "must be unique")
        if ".." in path.split("/"):
            fields.invalid(device, "devicePath", "can not contain backsteps ('..')")
        else:
            paths.add(path)
        names.add(name)


def _name(reader: Reader, volumes: Mapping[str, str], *, all_known: bool) -> str:
    """Judge the name of a volume that a container has; return it."""
    name = fields.needed(reader, "name")
    if name and all_known and name not in volumes:
        has = f"the pod has {', '.join(sorted(filter(None, volumes)))}" if volumes else "the pod has no volumes"
        reader.problem("name", f"Not found: {name!r}: {has}")
    return name


def _relative(reader: Reader, field: str) -> None:
    path = reader.text(field)
    if path.startswith("/"):
        fields.invalid(reader, field, "must be a relative path")
    if ".." in path.split("/"):
        fields.invalid(reader, field, "must not contain '..'")


def _needs(*names: str) -> Callable[[Reader], None]:
    """Return the rule of a source that has to have texts."""

    def judge(source: Reader) -> None:
        for name in names:
            fields.needed(source, name)

    return judge


def _empty_dir(source: Reader) -> None:
    limit = fields.amount(source, "sizeLimit")
    if limit is not None and limit < 0:
        source.problem("sizeLimit", "Forbidden: SizeLimit field must be a valid resource quantity")


def _ephemeral(source: Reader) -> None:
    if "volumeClaimTemplate" not in source:
        source.problem("volumeClaimTemplate", "Required value")
        return
    template = source.child("volumeClaimTemplate")
    metadata = template.child("metadata")
    fields.labels(metadata, "labels")
    fields.annotations(metadata, "annotations")
    for field in metadata.unknown(("labels", "annotations", "creationTimestamp")):
        if metadata.raw(field):
            metadata.problem(field, "Forbidden: cannot be set")
    storage.validate_claim_spec(template.child("spec"))


_SOURCES: Mapping[str, Callable[[Reader], None]] = {
    "emptyDir": _empty_dir,
    "hostPath": storage.host_path,
    "gcePersistentDisk": _needs("pdName"),
    "awsElasticBlockStore": _needs("volumeID"),
    "azureDisk": _needs("diskName", "diskURI"),
    "iscsi": _needs("targetPortal", "iqn"),
    "rbd": _needs("image"),
    "secret": _needs("secretName"),
    "configMap": _needs("name"),
    "nfs": storage.nfs,
    "persistentVolumeClaim": _needs("claimName"),
    "csi": storage.driver,
    "ephemeral": _ephemeral,
}
