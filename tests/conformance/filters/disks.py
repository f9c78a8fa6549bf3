"""Rules about volumes on a node: their zones, who may use them at once, and how many a node can have."""

from tests.conformance.filters.draws import Draw
from tests.conformance.filters.volumes import DRIVER, add, add_claim, bind, claim_of, storage_classes, volume_of
from tests.conformance.filters.world import REGION, ZONE, Json, World, merge

BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
GCE, GCE_DRIVER = "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


def volume_zone(draw: Draw, world: World) -> None:
    """Bound volumes with labels of zones, one or several, of the old name or the new."""
    storage_classes(draw, world)
    for node in world.nodes:
        labels = node["metadata"]["labels"]
        if draw.chance(15):
            for old, new in ((BETA_ZONE, ZONE), (BETA_REGION, REGION)):
                if new in labels:
                    labels[old] = labels.pop(new) if draw.chance(50) else labels[new]
    for group in world.groups:
        for pod in group:
            if draw.chance(85):
                meta = pod["metadata"]
                claim = claim_of(meta["namespace"], f"{meta['name']}-zoned", class_name="now")
                if draw.chance(90):
                    volume = volume_of(f"pv-{meta['name']}-zoned", class_name="now")
                    volume["metadata"]["labels"] = _zone_labels(draw)
                    bind(claim, volume)
                    add(world, "pvs", volume)
                else:
                    claim["spec"]["storageClassName"] = draw.pick(("now", "fast", "gone", ""))
                add_claim(world, pod, claim["metadata"]["name"], claim)


def _zone_labels(draw: Draw) -> Json:
    labels: Json = {}
    if draw.chance(85):
        labels[draw.weighted([(ZONE, 80), (BETA_ZONE, 20)])] = draw.pick(
            ("z1", "z2", "z1__z2", "z3__z1", "z9", "", "z1__")
        )
    if draw.chance(35):
        labels[draw.weighted([(REGION, 80), (BETA_REGION, 20)])] = draw.weighted([("r1", 80), ("r2", 20)])
    return labels


def volume_restrictions(draw: Draw, world: World) -> None:
    """Disks that one node mounts once, and claims that one pod uses at a time."""
    storage_classes(draw, world)
    disks = [_disk(draw) for _ in range(draw.number(1, 3))]
    for pod in world.pods:
        if draw.chance(45):
            disk = dict(draw.pick(disks))
            kind, source = next(iter(disk.items()))
            if kind != "awsElasticBlockStore" and draw.chance(35):
                source = {**source, "readOnly": True}
            merge(pod, {"spec": {"volumes": [{"name": "disk", kind: source}]}})
    claims = ("sole-0", "sole-1")
    for pod in world.pods:
        if draw.chance(40):
            name, namespace = draw.pick(claims), pod["metadata"]["namespace"]
            mode = "ReadWriteOncePod" if name == "sole-0" else draw.pick(("ReadWriteOnce", "ReadWriteOncePod"))
            claim = claim_of(namespace, name, class_name="now", modes=(mode,))
            volume = volume_of(f"pv-{namespace}-{name}", class_name="now", modes=(mode,))
            bind(claim, volume)
            add(world, "pvs", volume)
            add_claim(world, pod, name, claim)


def _disk(draw: Draw) -> Json:
    number = draw.number(0, 1)
    monitors = draw.some(("m1", "m2", "m3"), least=1)
    return draw.pick(
        [
            {"gcePersistentDisk": {"pdName": f"disk-{number}"}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{number}"}},
            {"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": f"iqn.2001-04.com.example:d{number}", "lun": 0}},
            {"rbd": {"monitors": monitors, "image": f"image-{number}", "pool": draw.pick(("rbd", "other"))}},
        ]
    )


def node_volume_limits(draw: Draw, world: World) -> None:
    """Nodes whose drivers attach few volumes, pods that share some, and attachments that no pod explains."""
    storage_classes(draw, world)
    migrated = draw.chance(25)
    for node in world.nodes:
        if draw.chance(90):
            world.objects["csiNodes"].append(_csi_node(draw, node["metadata"]["name"], migrated=migrated))
    if draw.chance(50):
        spec = {"preventPodSchedulingIfMissing": True} if world.since(37) and draw.chance(60) else {}
        add(world, "csiDrivers", {"metadata": {"name": DRIVER}, "spec": spec})
    for pod in world.pods:
        for at in range(draw.weighted([(0, 20), (1, 50), (2, 30)])):
            _use_volume(draw, world, pod, at, migrated=migrated)
    for at in range(draw.number(0, 3)):
        volumes = world.objects["pvs"]
        name = draw.pick(volumes)["metadata"]["name"] if volumes and draw.chance(75) else f"other-{at}"
        world.objects["volumeAttachments"].append(
            {
                "metadata": {"name": f"attached-{at}"},
                "spec": {
                    "attacher": DRIVER if draw.chance(85) else GCE_DRIVER,
                    "nodeName": draw.pick(world.named()),
                    "source": {"persistentVolumeName": name},
                },
                "status": {"attached": draw.chance(80)},
            }
        )


def _csi_node(draw: Draw, name: str, *, migrated: bool) -> Json:
    drivers = []
    for driver in (DRIVER, GCE_DRIVER) if migrated else (DRIVER,):
        if draw.chance(90):
            found: Json = {"name": driver, "nodeID": name, "topologyKeys": []}
            if draw.chance(90):
                found["allocatable"] = {"count": draw.number(0, 3)} if draw.chance(95) else {}
            drivers.append(found)
    meta: Json = {"name": name}
    if migrated and draw.chance(80):
        meta["annotations"] = {MIGRATED: f"kubernetes.io/aws-ebs,{GCE}"}
    return {"metadata": meta, "spec": {"drivers": drivers}}


def _use_volume(draw: Draw, world: World, pod: Json, at: int, *, migrated: bool) -> None:
    meta = pod["metadata"]
    kind = draw.weighted([("own", 50), ("shared", 25), ("waiting", 12), ("disk" if migrated else "own", 13)])
    if kind == "disk":
        name = f"pd-{draw.number(0, 2)}"
        if all(name != one.get("gcePersistentDisk", {}).get("pdName") for one in pod["spec"].get("volumes", ())):
            disk = {"name": f"i{at}", "gcePersistentDisk": {"pdName": name, "readOnly": True}}
            merge(pod, {"spec": {"volumes": [disk]}})
        return
    name = f"shared-{draw.number(0, 1)}" if kind == "shared" else f"{meta['name']}-disk-{at}"
    claim = claim_of(
        meta["namespace"], name, class_name="fast" if kind == "waiting" else "now", modes=("ReadWriteMany",)
    )
    if kind != "waiting":
        # Volumes of one handle are one to the driver.
        handle = draw.weighted([("", 85), ("same", 15)])
        volume = volume_of(f"pv-{meta['namespace']}-{name}", class_name="now", handle=handle)
        if migrated and draw.chance(30):
            del volume["spec"]["csi"]
            volume["spec"]["gcePersistentDisk"] = {"pdName": f"pd-{draw.number(0, 2)}"}
        bind(claim, volume)
        add(world, "pvs", volume)
    if all(name != one.get("persistentVolumeClaim", {}).get("claimName") for one in pod["spec"].get("volumes", ())):
        add_claim(world, pod, name, claim)
