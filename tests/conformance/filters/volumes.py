"""Claims for volumes: bound and waiting, made and found, with the places, sizes and zones that they ask."""

from collections.abc import Mapping

from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import HOSTNAME, NAMESPACES, RACK, REGION, ZONE, ZONES, Json, World, merge

DRIVER = "csi.example.com"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED = "volume.kubernetes.io/selected-node"
SIZES = ("1Gi", "2Gi", "5Gi", "10Gi")


def add_claim(world: World, pod: Json, name: str, claim: Json | None, *, read_only: bool = False) -> None:
    """Give a pod a volume of a claim, and the world that claim if there is one."""
    source: Json = {"claimName": name} | ({"readOnly": True} if read_only else {})
    volumes = pod["spec"].get("volumes", ())
    merge(pod, {"spec": {"volumes": [{"name": f"v{len(volumes)}", "persistentVolumeClaim": source}]}})
    if claim is not None:
        add(world, "pvcs", claim)


def add(world: World, kind: str, one: Json) -> None:
    """Add an object to a world unless it has one of this name."""
    name = (one["metadata"].get("namespace"), one["metadata"]["name"])
    if all((each["metadata"].get("namespace"), each["metadata"]["name"]) != name for each in world.objects[kind]):
        world.objects[kind].append(one)


def claim_of(
    namespace: str, name: str, *, class_name: str | None, size: str = "1Gi", modes: tuple[str, ...] = ()
) -> Json:
    spec: Json = {"accessModes": list(modes or ("ReadWriteOnce",)), "resources": {"requests": {"storage": size}}}
    if class_name is not None:
        spec["storageClassName"] = class_name
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Pending"}}


def bind(claim: Json, volume: Json) -> None:
    """Bind a claim and a volume to each other."""
    meta = claim["metadata"]
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    claim["status"] = {"phase": "Bound"}
    meta["annotations"] = {**meta.get("annotations", {}), **BOUND}
    reference = {"kind": "PersistentVolumeClaim", "name": meta["name"], "namespace": meta["namespace"]}
    volume["spec"]["claimRef"] = {**reference, "uid": f"{meta['namespace']}/{meta['name']}"}
    volume["status"] = {"phase": "Bound"}


def volume_of(name: str, *, class_name: str, size: str = "1Gi", modes: tuple[str, ...] = (), handle: str = "") -> Json:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": list(modes or ("ReadWriteOnce",)),
            "storageClassName": class_name,
            "csi": {"driver": DRIVER, "volumeHandle": handle or name},
        },
        "status": {"phase": "Available"},
    }


def on_nodes(draw: Draw, world: World) -> Json:
    """Draw where a volume can be used: on one node, in zones, or by several expressions."""
    kind = draw.weighted([("node", 40), ("zone", 40), ("mixed", 15), ("empty", 5)])
    if kind == "node":
        terms = [_term(HOSTNAME, "In", draw.some(world.named(), least=1, most=2))]
    elif kind == "zone":
        terms = [_term(ZONE, "In", draw.some(ZONES, least=1, most=2))]
    elif kind == "mixed":
        terms = [_term(RACK, draw.pick(("In", "NotIn")), ["k1"]), _term(ZONE, "In", ["z2"])]
    else:
        terms = [_term("example.com/nowhere", draw.pick(("Exists", "DoesNotExist")), None)]
    return {"required": {"nodeSelectorTerms": terms}}


def _term(key: str, operator: str, values: list[str] | None) -> Json:
    expression: Json = {"key": key, "operator": operator}
    return {"matchExpressions": [expression | ({"values": values} if values is not None else {})]}


def storage_classes(draw: Draw, world: World) -> None:
    """Add the classes that claims name: one that makes volumes at once, one on demand, one that only finds them."""
    add(world, "storageClasses", _class("now", DRIVER, "Immediate"))
    fast = _class("fast", DRIVER, "WaitForFirstConsumer")
    if draw.chance(50):
        key, values = draw.pick([(ZONE, ZONES), (RACK, ("k1", "k2", "k3")), (HOSTNAME, tuple(world.named()))])
        places = [{"key": key, "values": draw.some(values, least=1, most=2)}]
        if draw.chance(20):
            places.append({"key": REGION, "values": ["r1"]})
        fast["allowedTopologies"] = [{"matchLabelExpressions": places}]
        if draw.chance(20):
            fast["allowedTopologies"].append({"matchLabelExpressions": [{"key": ZONE, "values": [draw.pick(ZONES)]}]})
    add(world, "storageClasses", fast)
    add(world, "storageClasses", _class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"))


def _class(name: str, provisioner: str, mode: str) -> Json:
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}


def volume_binding(draw: Draw, world: World) -> None:
    """Claims in every state that a scheduler meets, each pod its own or one for all."""
    storage_classes(draw, world)
    _add_capacity(draw, world)
    _add_local_volumes(draw, world)
    for number, group in enumerate(world.groups):
        for at in range(draw.weighted([(1, 70), (2, 30)])):
            state = draw.weighted(STATES)
            shared = draw.chance(30)
            size, class_name = draw.pick(SIZES), draw.pick(("fast", "local"))
            for pod in group:
                name = f"shared-{number}-{at}" if shared else f"{pod['metadata']['name']}-{at}"
                if state == "ephemeral":
                    _add_ephemeral(draw, world, pod, class_name, size)
                else:
                    claim = _claim(draw, world, pod["metadata"]["namespace"], name, (state, class_name, size))
                    add_claim(world, pod, name, claim)


STATES = (
    ("bound", 30),
    ("waiting", 45),
    ("ephemeral", 8),
    ("immediate", 2),
    ("missing", 2),
    ("lost", 2),
    ("deleted", 2),
    ("volume gone", 2),
    ("prebound", 2),
    ("selected", 4),
    ("class gone", 1),
)


def _claim(draw: Draw, world: World, namespace: str, name: str, wanted: tuple[str, str, str]) -> Json | None:
    """Return the claim in a state, with its volume in the world if it has one; None if it is missing."""
    state, class_name, size = wanted
    if state == "missing":
        return None
    classes = {"immediate": "now", "selected": "fast", "class gone": "gone"}
    modes = ("ReadWriteMany",) if draw.chance(8) else ()
    claim = claim_of(namespace, name, class_name=classes.get(state, class_name), size=size, modes=modes)
    if state in ("bound", "deleted"):
        _bind_somewhere(draw, world, claim)
    elif state == "selected":
        claim["metadata"]["annotations"] = {SELECTED: draw.pick(world.named())}
    merge(claim, draw.weighted(ODD) if state == "waiting" else OF_STATE.get(state, {}))
    return claim


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
OF_STATE: Mapping[str, Json] = {
    "lost": {"spec": {"volumeName": "gone"}, "status": {"phase": "Lost"}},
    "deleted": {"metadata": DELETED},
    "volume gone": {"spec": {"volumeName": "gone"}, "metadata": {"annotations": BOUND}},
    "prebound": {"spec": {"volumeName": "local-0"}},
}
ODD: tuple[tuple[Json, int], ...] = (
    ({}, 70),
    ({"spec": {"selector": {"matchLabels": {"kind": "good"}}}}, 15),
    ({"spec": {"selector": {"matchExpressions": [{"key": "kind", "operator": "NotIn", "values": ["bad"]}]}}}, 5),
    ({"spec": {"volumeMode": "Block"}}, 10),
)
"""What a claim that waits asks beyond a class and a size."""


def _bind_somewhere(draw: Draw, world: World, claim: Json) -> None:
    meta = claim["metadata"]
    name = f"pv-{meta['namespace']}-{meta['name']}"
    volume = volume_of(
        name, class_name=claim["spec"]["storageClassName"], size=claim["spec"]["resources"]["requests"]["storage"]
    )
    if draw.chance(85):
        volume["spec"]["nodeAffinity"] = on_nodes(draw, world)
    bind(claim, volume)
    add(world, "pvs", volume)


def _add_ephemeral(draw: Draw, world: World, pod: Json, class_name: str, size: str) -> None:
    """Give a pod a generic ephemeral volume, whose claim is most often there and its own."""
    meta, volume = pod["metadata"], f"scratch-{len(pod['spec'].get('volumes', ()))}"
    claim = claim_of(meta["namespace"], f"{meta['name']}-{volume}", class_name=class_name, size=size)
    template = {"spec": {key: value for key, value in claim["spec"].items() if key != "volumeName"}}
    merge(pod, {"spec": {"volumes": [{"name": volume, "ephemeral": {"volumeClaimTemplate": template}}]}})
    state = draw.weighted([("own", 85), ("missing", 8), ("another's", 7)])
    if state == "missing":
        return
    uid = f"{meta['namespace']}/{meta['name']}" if state == "own" else "another"
    claim["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": uid, "controller": True}
    ]
    if draw.chance(20):
        _bind_somewhere(draw, world, claim)
    add(world, "pvcs", claim)


def _add_capacity(draw: Draw, world: World) -> None:
    """Have the driver say, or not, where it has how much space left."""
    if draw.chance(30):
        return
    driver: Json = {"metadata": {"name": DRIVER}, "spec": {}}
    if draw.chance(80):
        driver["spec"]["storageCapacity"] = draw.chance(90)
    add(world, "csiDrivers", driver)
    for at in range(draw.number(0, 6)):
        capacity: Json = {
            "metadata": {"name": f"space-{at}", "namespace": draw.pick(NAMESPACES)},
            "storageClassName": draw.weighted([("fast", 85), ("local", 15)]),
        }
        if draw.chance(92):
            key, values = draw.weighted([((ZONE, ZONES), 60), ((HOSTNAME, tuple(world.named())), 40)])
            chosen = draw.some(values, least=1, most=2)
            capacity["nodeTopology"] = draw.pick(
                [
                    {"matchLabels": {key: chosen[0]}},
                    {"matchExpressions": [{"key": key, "operator": "In", "values": chosen}]},
                ]
            )
        if draw.chance(90):
            capacity["capacity"] = draw.pick((*SIZES, "100Gi"))
        if draw.chance(25):
            capacity["maximumVolumeSize"] = draw.pick(SIZES)
        add(world, "csiStorageCapacities", capacity)


def _add_local_volumes(draw: Draw, world: World) -> None:
    """Add volumes that can be found; no two of one size, since kube-scheduler chooses among equals as they come."""
    for at in range(draw.number(0, 9)):
        volume = volume_of(
            f"local-{at}", class_name=draw.weighted([("local", 80), ("fast", 20)]), size=f"{2 * at + 1}Gi"
        )
        if draw.chance(90):
            volume["spec"]["nodeAffinity"] = on_nodes(draw, world)
        if draw.chance(40):
            volume["metadata"]["labels"] = {"kind": draw.pick(("good", "bad"))}
        if draw.chance(15):
            volume["spec"]["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
        if draw.chance(8):
            volume["spec"]["volumeMode"] = "Block"
        state = draw.weighted([("free", 82), ("released", 6), ("deleted", 4), ("reserved", 8)])
        if state == "released":
            volume["status"]["phase"] = "Released"
            volume["spec"]["claimRef"] = {"name": "old", "namespace": "default", "uid": "old"}
        elif state == "deleted":
            volume["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
        elif state == "reserved":
            pod = draw.pick(world.gang)["metadata"]
            kept = {"name": f"{pod['name']}-0", "namespace": pod["namespace"]}
            if all(one["spec"].get("claimRef") != kept for one in world.objects["pvs"]):
                # Of two that are kept for one claim kube-scheduler would take any.
                volume["spec"]["claimRef"] = kept
        add(world, "pvs", volume)


def competing_claims(draw: Draw, world: World) -> None:
    """Claims that wait for volumes that are there: of one node or a zone, of equal sizes and others, own and shared."""
    storage_classes(draw, world)
    for node in world.named():
        for at in range(draw.number(0, 3)):
            _add_free(draw, world, f"disk-{node}-{at}", _term(HOSTNAME, "In", [node]), draw.pick(("1Gi", "2Gi", "5Gi")))
    for at in range(draw.weighted([(0, 50), (2, 30), (4, 20)])):
        zones = draw.some(ZONES, least=1, most=2)
        # Zones overlap: of equal sizes kube-scheduler would take any.
        _add_free(draw, world, f"zonal-{at}", _term(ZONE, "In", zones), f"{2 * at + 7}Gi")
    for number, group in enumerate(world.groups):
        for at in range(draw.weighted([(1, 75), (2, 25)])):
            shared = draw.chance(12)
            spec = draw.weighted([({}, 75), ({"selector": {"matchLabels": {"kind": "good"}}}, 25)])
            size, class_name = draw.pick(("1Gi", "2Gi", "4Gi")), draw.weighted([("local", 85), ("fast", 15)])
            for pod in group:
                name = f"shared-{number}-{at}" if shared else f"{pod['metadata']['name']}-{at}"
                claim = claim_of(pod["metadata"]["namespace"], name, class_name=class_name, size=size)
                claim["spec"] |= spec
                if draw.chance(8) and not shared:
                    _keep_one(draw, world, claim)
                add_claim(world, pod, name, claim)


def _add_free(draw: Draw, world: World, name: str, place: Json, size: str) -> None:
    """Add a volume that nobody has; those that select by kind tell volumes of one size apart."""
    volume = volume_of(name, class_name=draw.weighted([("local", 90), ("fast", 10)]), size=size)
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [place]}}
    volume["metadata"]["labels"] = {"kind": "good" if size in ("2Gi", "7Gi", "11Gi") else "bad"}
    add(world, "pvs", volume)


def _keep_one(draw: Draw, world: World, claim: Json) -> None:
    """Keep a volume for a claim, if there is one."""
    free = [one for one in world.objects["pvs"] if "claimRef" not in one["spec"]]
    if free:
        meta = claim["metadata"]
        draw.pick(free)["spec"]["claimRef"] = {"name": meta["name"], "namespace": meta["namespace"]}
