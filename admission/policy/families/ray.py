"""RayCluster (ray.io), and so RayJob and RayService, which make their pods by way of one.

The head and the workers are made together. With autoscaling the cluster starts with as many workers as it keeps at
least; the rest comes when Ray asks for it. What a RayJob submits its job with is a batch Job of its own, made when the
cluster is up, and no part of the gang (`ray-operator/controllers/ray/utils/util.go`, CalculateMinReplicas, v1.5).
"""

from admission.api.meta import Meta
from admission.api.reading import Reader
from admission.policy.families.kinship import Family, Shape, one_wave

NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
REPLICA = "ray.io/worker-group-replica-name"
"""Of a group whose replicas have several hosts: the hosts of one of them."""


def read(reader: Reader, _meta: Meta) -> Shape:
    """Return the head and the workers of all groups."""
    spec = reader.child("spec")
    least = most = 0
    for group in spec.children("workerGroupSpecs"):
        if group.flag("suspend"):
            continue
        hosts = group.integer("numOfHosts", 1)
        fewest = group.integer("minReplicas")
        wanted = max(group.integer("replicas", fewest), fewest)
        if "maxReplicas" in group:
            wanted = min(wanted, group.integer("maxReplicas"))
        least += fewest * hosts
        most += wanted * hosts
    scales = spec.flag("enableInTreeAutoscaling")
    return one_wave(1 + most, 1 + least if scales else None)


FAMILIES = (
    Family(
        kind="RayCluster",
        group="ray.io",
        versions=("v1", "v1alpha1"),
        plural="rayclusters",
        read=read,
        fields="spec.workerGroupSpecs",
    ),
)
