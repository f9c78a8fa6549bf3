"""Spark on Kubernetes: a driver is a gang, and its executors are another, which starts with the first of them.

The running driver creates its executors a few at a time, each batch after it has seen the one before: a gang that
waited for all of them would wait for ever (`ExecutorPodsAllocator.scala`, v4.0). The driver owns its executors, with or
without a SparkApplication above it.
"""

from collections.abc import Sequence

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.values.decoding import Reader
from admission.workloads.kinds.registry import Link, Member, Shape, WorkloadKind, wave

ROLE = "spark-role"
DRIVER = "driver"
EXECUTORS = "executors"


def read(reader: Reader, _meta: Meta) -> Shape:
    """Return the driver's wave and that of the executors."""
    spec = reader.child("spec")
    dynamic = spec.child("dynamicAllocation")
    if dynamic.flag("enabled"):
        executors = dynamic.integer("initialExecutors", dynamic.integer("minExecutors"))
    else:
        executors = spec.child("executor").integer("instances", 1)
    return {"": wave(1), EXECUTORS: wave(executors, 1)}, {EXECUTORS: EXECUTORS}


def join(pod: Pod, links: Sequence[Link], _parent: Parent) -> Member:
    """Return a pod's role: an executor of its driver, or the driver itself."""
    driver = links[-1].obj if links else None
    return executors_of(driver) if isinstance(driver, Pod) else Member(uid=pod.meta.uid, name=pod.meta.name)


def executors_of(driver: Pod) -> Member:
    """Return the role of an executor of this driver."""
    return Member(uid=driver.meta.uid, name=driver.meta.name, role=EXECUTORS)


def is_driver(pod: Pod) -> bool:
    """Whether a pod that owns pods is a Spark driver."""
    return pod.meta.labels.get(ROLE) == DRIVER


KINDS = (
    WorkloadKind(
        kind="SparkApplication",
        group="sparkoperator.k8s.io",
        versions=("v1beta2",),
        plural="sparkapplications",
        read=read,
        join=join,
        fields="spec.executor.instances",
    ),
)
