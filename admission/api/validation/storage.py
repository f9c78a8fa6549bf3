"""Validation of persistent volumes, the claims for them and their classes.

In the API server's words. Mirrors `pkg/apis/core/validation` and `pkg/apis/storage/validation` of Kubernetes (v1.36.3,
v1.37.1), but for the fields of volumes of one vendor.
"""

from admission.api.validation import fields, selectors
from admission.api.values import formats
from admission.api.values.decoding import Reader

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
CLASS_RECLAIM_POLICIES = ("Delete", "Retain")
VOLUME_MODES = ("Block", "Filesystem")
HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
SOURCES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs",
    "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
    "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
"""Of persistent volumes, in the order in which the API server looks for them."""


def validate_claim_spec(spec: Reader) -> None:
    """Judge a v1.PersistentVolumeClaimSpec."""
    _access_modes(spec, "at least 1 access mode is required")
    selectors.label_selector(spec.child("selector"))
    resources = spec.child("resources")
    for field in ("requests", "limits"):
        for name in resources.keys(field):
            fields.amount(resources.child(field), name)
    requests = resources.child("requests")
    storage = fields.amount(requests, "storage")
    if "storage" not in requests:
        requests.problem("storage", "Required value")
    elif storage is not None and storage <= 0:
        fields.invalid(requests, "storage", "must be greater than zero")
    for field in ("storageClassName", "volumeAttributesClassName"):
        _class_name(spec, field)
    fields.supported(spec, "volumeMode", VOLUME_MODES)


def validate_volume(volume: Reader) -> None:
    """Judge a v1.PersistentVolume."""
    spec = volume.child("spec")
    _access_modes(spec)
    capacity = spec.child("capacity")
    if [*spec.keys("capacity")] != ["storage"]:
        spec.problem("capacity", f"Unsupported value: {dict(capacity.value)!r}: supported values: 'storage'")
    for name in spec.keys("capacity"):
        amount = fields.amount(capacity, name)
        if amount is not None and amount <= 0:
            fields.invalid(capacity, name, "must be greater than zero")
    if spec.text("persistentVolumeReclaimPolicy"):
        fields.supported(spec, "persistentVolumeReclaimPolicy", RECLAIM_POLICIES)
    affinity = spec.child("nodeAffinity")
    if "required" in affinity:
        selectors.node_selector(affinity.child("required"))
    elif "nodeAffinity" in spec:
        affinity.problem("required", "Required value: must specify required node constraints")
    _volume_source(spec)
    _class_name(spec, "storageClassName")
    fields.supported(spec, "volumeMode", VOLUME_MODES)


def _volume_source(spec: Reader) -> None:
    """Judge where a persistent volume is."""
    source = one_source(spec, SOURCES)
    match source:
        case "":
            spec.problem("", "Required value: must specify a volume type, such as csi")
        case "hostPath":
            host_path(spec.child(source))
        case "nfs":
            nfs(spec.child(source))
        case "csi":
            driver(spec.child(source))
            fields.needed(spec.child(source), "volumeHandle")
        case "local":
            fields.needed(spec.child(source), "path")
            if "nodeAffinity" not in spec:
                spec.problem("nodeAffinity", "Required value: Local volume requires node affinity")
        case _:
            pass


def validate_class(reader: Reader) -> None:
    """Judge a storage.k8s.io/v1 StorageClass."""
    provisioner = fields.needed(reader, "provisioner")
    if provisioner and (message := formats.key(provisioner.lower())):
        reader.problem("provisioner", f"Invalid value: {message}")
    if reader.text("reclaimPolicy"):
        fields.supported(reader, "reclaimPolicy", CLASS_RECLAIM_POLICIES)
    fields.supported(reader, "volumeBindingMode", ("Immediate", "WaitForFirstConsumer"))
    earlier: list[dict[str, frozenset[str]]] = [{}]
    for term in reader.children("allowedTopologies"):
        found = _topology_term(term)
        if found in earlier:
            # The API server says so of the first term without expressions, too.
            term.problem("matchLabelExpressions", "Duplicate value: a term has expressions, and no other term has them")
        earlier.append(found)


def _topology_term(term: Reader) -> dict[str, frozenset[str]]:
    """Judge a v1.TopologySelectorTerm; return its values by key."""
    found: dict[str, frozenset[str]] = {}
    for expression in term.children("matchLabelExpressions"):
        key, values = expression.text("key"), expression.texts("values")
        if message := formats.key(key):
            expression.problem("key", f"Invalid value: {message}")
        elif key in found:
            expression.problem("key", f"Duplicate value: {key!r}")
        found[key] = frozenset(values)
        if not values:
            expression.problem("values", "Required value")
        for index, value in enumerate(values):
            if value in values[:index]:
                expression.problem(f"values[{index}]", f"Duplicate value: {value!r}")
    return found


def one_source(reader: Reader, known: tuple[str, ...]) -> str:
    """Return the source of a volume, "" without one; note that it has a second one."""
    first, *others = [name for name in known if name in reader] or [""]
    for name in others:
        reader.problem(name, f"Forbidden: may not specify more than 1 volume type, and {first} is one")
    return first


def host_path(source: Reader) -> None:
    """Judge a path of a node as a volume."""
    if ".." in fields.needed(source, "path").split("/"):
        fields.invalid(source, "path", "must not contain '..'")
    fields.supported(source, "type", HOST_PATH_TYPES)


def nfs(source: Reader) -> None:
    """Judge a share of an NFS server as a volume."""
    fields.needed(source, "server")
    if not fields.needed(source, "path").startswith("/"):
        fields.invalid(source, "path", "must be an absolute path")


def driver(source: Reader) -> None:
    """Judge the CSI driver of a volume."""
    name = fields.needed(source, "driver")
    if name and (message := formats.driver(name)):
        source.problem("driver", f"Invalid value: {message}")


def _access_modes(spec: Reader, why: str = "") -> None:
    modes = spec.texts("accessModes")
    if not modes and not spec.raw("accessModes"):
        spec.problem("accessModes", f"Required value: {why}" if why else "Required value")
    for mode in modes:
        if mode not in ACCESS_MODES:
            spec.problem("accessModes", fields.unsupported(mode, ACCESS_MODES))
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        spec.problem("accessModes", "Forbidden: may not use ReadWriteOncePod with other access modes")


def _class_name(spec: Reader, field: str) -> None:
    name = spec.text(field)
    if name and (message := formats.subdomain(name)):
        spec.problem(field, f"Invalid value: {message}")
