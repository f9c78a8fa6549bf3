"""Spark on Kubernetes: a driver is a gang, and its executors are another, which starts with the first of them.

The driver makes the executors when it runs, a few at a time, and each lot when it has seen the one before: whoever
waited for all of them would wait for ever (`ExecutorPodsAllocator.scala`, v4.0). The driver owns its executors, with a
SparkApplication above it or without.
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
    """Return who a pod is by its driver."""
    driver = links[-1].found if links else None
    return of_driver(driver) if isinstance(driver, Pod) else Member(uid=pod.meta.uid, name=pod.meta.name)


def of_driver(driver: Pod) -> Member:
    """Return an executor of a driver."""
    return Member(uid=driver.meta.uid, name=driver.meta.name, role=EXECUTORS)


def is_driver(pod: Pod) -> bool:
    """Whether a pod that has made others is a driver that nobody but itself speaks for."""
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
