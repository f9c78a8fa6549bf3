"""Validation of the volumes of a pod, and of where its containers mount them.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), for the sources that
schedulers read or that most pods use; of other sources only that there is no second one.
"""

from collections.abc import Callable, Mapping

from admission.api.validation import fields, storage
from admission.api.validation.pods import environment
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

RECURSIVE = ("Disabled", "Enabled", "IfPossible")
PROJECTIONS = ("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate")
POD_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
"""Fields of pods that files may have."""
SHORTEST_TOKEN, LONGEST_TOKEN = 600, 2**32
"""How long a token may last, in seconds."""
MOST_OPEN = 0o777
"""The mode of a file that anybody may do anything with."""


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
        _propagation(mount, container)
        if mount.text("subPath") and mount.text("subPathExpr"):
            fields.invalid(mount, "subPathExpr", "subPathExpr and subPath are mutually exclusive")
    _devices(devices, volumes, all_known=all_known)


def _propagation(mount: Reader, container: Reader) -> None:
    """Judge what a mount shares with the node, and what of it is read-only."""
    how = fields.supported(mount, "mountPropagation", ("Bidirectional", "HostToContainer", "None"), "None")
    if how == "Bidirectional" and not container.child("securityContext").flag("privileged"):
        message = "Forbidden: Bidirectional mount propagation is available only to privileged containers"
        mount.problem("mountPropagation", message)
    if fields.supported(mount, "recursiveReadOnly", RECURSIVE) not in RECURSIVE[1:]:
        return
    if not mount.flag("readOnly"):
        mount.problem("recursiveReadOnly", "Forbidden: may only be specified when readOnly is true")
    if how != "None":
        why = "may only be specified when mountPropagation is None or not specified"
        mount.problem("recursiveReadOnly", f"Forbidden: {why}")


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


def _of_monitors(*names: str) -> Callable[[Reader], None]:
    """Return the rule of a source of Ceph, which has to have texts, too."""

    def judge(source: Reader) -> None:
        if not source.texts("monitors") and not source.raw("monitors"):
            source.problem("monitors", "Required value")
        _needs(*names)(source)

    return judge


def _image(source: Reader) -> None:
    fields.needed(source, "reference")
    if source.text("pullPolicy"):
        fields.supported(source, "pullPolicy", ("Always", "IfNotPresent", "Never"))


def _of_files(name: str) -> Callable[[Reader], None]:
    """Return the rule of a source whose entries become files. name: of the field that names the source."""

    def judge(source: Reader) -> None:
        fields.needed(source, name)
        _mode(source, "defaultMode")
        _items(source)

    return judge


def _items(source: Reader) -> list[str]:
    """Judge the files that are made of keys; return their paths."""
    for item in source.children("items"):
        fields.needed(item, "key")
        _local(item, "path")
        _mode(item, "mode")
    return [item.text("path") for item in source.children("items")]


def _downward_api(source: Reader) -> None:
    _mode(source, "defaultMode")
    _pod_files(source)


def _pod_files(source: Reader) -> list[str]:
    """Judge the files that tell of the pod; return their paths."""
    for item in source.children("items"):
        _local(item, "path")
        _mode(item, "mode")
        if "fieldRef" in item:
            environment.pod_field(item.child("fieldRef"), POD_FIELDS)
            if "resourceFieldRef" in item:
                message = "fieldRef and resourceFieldRef can not be specified simultaneously"
                item.problem("resourceFieldRef", f"Invalid value: {message}")
        elif "resourceFieldRef" in item:
            environment.amount(item.child("resourceFieldRef"), of_volume=True)
        else:
            item.problem("", "Required value: one of fieldRef and resourceFieldRef is required")
    return [item.text("path") for item in source.children("items")]


def _projected(source: Reader) -> None:
    _mode(source, "defaultMode")
    paths: set[str] = set()
    for one in source.children("sources"):
        found = [name for name in PROJECTIONS if name in one]
        if len(found) > 1:
            one.problem("", "Forbidden: may not specify more than 1 volume type per source")
        of_source: list[str] = []
        for name in ("secret", "configMap"):
            if name in one:
                fields.needed(one.child(name), "name")
                of_source += _items(one.child(name))
        if "downwardAPI" in one:
            of_source += _pod_files(one.child("downwardAPI"))
        if "serviceAccountToken" in one:
            _token(one.child("serviceAccountToken"))
        for path in filter(None, of_source):
            if path in paths:
                one.problem("", f"Invalid value: {path!r}: conflicting duplicate paths")
            paths.add(path)


def _token(token: Reader) -> None:
    if "expirationSeconds" in token:
        if token.integer("expirationSeconds") < SHORTEST_TOKEN:
            fields.invalid(token, "expirationSeconds", "may not specify a duration less than 10 minutes")
        if token.integer("expirationSeconds") > LONGEST_TOKEN:
            fields.invalid(token, "expirationSeconds", "may not specify a duration larger than 2^32 seconds")
    _local(token, "path")


def _local(reader: Reader, field: str) -> None:
    """Judge the path of a file below its volume."""
    path = fields.needed(reader, field)
    if path.startswith(".."):
        fields.invalid(reader, field, "must not start with '..'")
    else:
        _relative(reader, field)


def _mode(reader: Reader, field: str) -> None:
    if field in reader and not 0 <= reader.integer(field) <= MOST_OPEN:
        why = "must be a number between 0 and 0777 (octal), both inclusive"
        fields.invalid(reader, field, f"{why}: YAML reads 0777 as octal, JSON needs {MOST_OPEN}")


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
    "rbd": _of_monitors("image"),
    "cephfs": _of_monitors(),
    "cinder": _needs("volumeID"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "vsphereVolume": _needs("volumePath"),
    "azureFile": _needs("secretName", "shareName"),
    "glusterfs": _needs("endpoints", "path"),
    "quobyte": _needs("registry", "volume"),
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "storageos": _needs("volumeName"),
    "flexVolume": _needs("driver"),
    "gitRepo": _needs("repository"),
    "image": _image,
    "secret": _of_files("secretName"),
    "configMap": _of_files("name"),
    "downwardAPI": _downward_api,
    "projected": _projected,
    "nfs": storage.nfs,
    "persistentVolumeClaim": _needs("claimName"),
    "csi": storage.driver,
    "ephemeral": _ephemeral,
}
