"""Gangs that do not fit, made to have a search try everything: counting alone does not tell of most of them."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import PodDemand
from tests.bench import shapes
from tests.bench.shapes import Json, Scene

ROOT = "resource.kubernetes.io/pcieRoot"


def _odd_one_out() -> Scene:
    """Pods of 5 GPUs on nodes of 8 leave no room for two of 4: of these there is one too many."""
    return Scene(shapes.cluster([shapes.whole(8)] * 20), lambda: shapes.sized([(5, 10), (4, 21)]))


def _more_than_half() -> Scene:
    """13 pods of several sizes, each more than half of a node, on 12 nodes; and small ones that would fit beside."""
    sizes = [(11, 4), (10, 4), (9, 5), (3, 8), (2, 8)]
    return Scene(shapes.cluster([shapes.whole(16)] * 12), lambda: shapes.sized(sizes))


def _one_partition_too_many() -> Scene:
    """16 cards: ten with a 4g take one 2g each, the others three. One more leaves slices free, but in no one place."""
    return Scene(shapes.cluster([shapes.cards(4)] * 4), lambda: shapes.partitioned([("4g", 10), ("2g", 29)]))


def _one_slice_too_few() -> Scene:
    """16 cards: 4g and 3g on each take all compute, and leave memory for a 1g."""
    return Scene(shapes.cluster([shapes.cards(8)] * 2), lambda: shapes.partitioned([("4g", 16), ("3g", 16), ("1g", 1)]))


def _numa() -> Scene:
    """Pods of 3 GPUs of one NUMA node, on nodes with 4 in each: every node takes two, and there are one too many."""
    rule = [{"matchAttribute": f"{shapes.DRIVER}/numa"}]
    return Scene(shapes.cluster([shapes.whole(8)] * 30), lambda: shapes.gang(61, shapes.request(3), constraints=rule))


def _roots() -> Scene:
    """Pods with eight pairs of GPUs that share a root, on nodes with fourteen: seven of three GPUs, seven of one."""
    sizes = [3, 1] * 7
    node = ([_rooted(root, at) for root, size in enumerate(sizes) for at in range(size)], list[Json]())
    return Scene(shapes.cluster([node] * 12), lambda: [_paired(f"pod-{at}", 8) for at in range(4)])


def _shared_claim() -> Scene:
    """Eight pods for one GPU each and one that they share need nine on one node; 40 nodes of 8 are partly in use."""
    random = Random(3)  # noqa: S311 - not for secrets
    cluster = shapes.cluster([shapes.whole(8)] * 40)
    taken = {device: Holder(claim="others/claim") for device in shapes.device_ids(cluster) if random.random() < 0.4}

    def gang() -> list[PodDemand]:
        common = shapes.claim("common", {"devices": {"requests": [shapes.request(1)]}})
        own = [shapes.pod(f"pod-{at}", {"devices": {"requests": [shapes.request(1)]}}) for at in range(8)]
        return [replace(pod, claims=(common, *pod.claims)) for pod in own]

    return Scene(replace(cluster, taken=taken), gang)


def _alternatives() -> Scene:
    """Pods with six requests of six alternatives each, one of which has to be on a NUMA node with six others."""

    def gang() -> list[PodDemand]:
        alternatives = [shapes.alternative(f"s-{count}", count) for count in (6, 5, 4, 3, 2, 1)]
        listed = [{"name": f"r-{at}", "firstAvailable": alternatives} for at in range(6)]
        requests = [*listed, {**shapes.request(6), "name": "last"}]
        rules = [{"matchAttribute": f"{shapes.DRIVER}/numa", "requests": ["r-0", "last"]}]
        return [shapes.pod(f"pod-{at}", {"devices": {"requests": requests, "constraints": rules}}) for at in range(8)]

    return Scene(shapes.cluster([shapes.whole(size) for size in (10, 11, 12) * 6]), gang)


def _bins() -> Scene:
    """Pods of 7, 5 and 3 GPUs that are as many as 16 nodes of seven sizes have, which they cannot fill."""
    sizes = [8, 8, 8, 9, 9, 9, 11, 11, 13, 13, 4, 4, 6, 6, 16, 16]
    return Scene(
        shapes.cluster([shapes.whole(size) for size in sizes]), lambda: shapes.sized([(7, 10), (5, 10), (3, 10)])
    )


def _resources() -> Scene:
    """Three kinds of pods for a GPU each, where CPU and memory of nodes of four sizes bind, and GPUs do not."""
    sizes = [(16, 64), (20, 48), (24, 96), (12, 100)] * 4
    left = [{"cpu": f"{cpu}", "memory": f"{memory}Gi"} for cpu, memory in sizes]

    def gang() -> list[PodDemand]:
        kinds = [("wide", 7, 12, 16), ("deep", 3, 37, 16), ("even", 5, 22, 20)]
        spec = {"devices": {"requests": [shapes.request(1)]}}
        return [
            shapes.pod(f"{name}-{at}", spec, cpu=f"{cpu}", memory=f"{memory}Gi")
            for name, cpu, memory, count in kinds
            for at in range(count)
        ]

    return Scene(shapes.cluster([shapes.whole(8)] * 16, left), gang)


def _consumed() -> Scene:
    """Shares of 37, 26 and 19 of cards of 80: together less than all capacity, but one more than fit."""
    return _shared_cards([("l", 37, 20), ("m", 26, 20), ("s", 19, 14)])


def _too_much_consumed() -> Scene:
    """The same, and more than all capacity: counting tells."""
    return _shared_cards([("l", 37, 20), ("m", 26, 20), ("s", 19, 20)])


def _shared_cards(wanted: Sequence[tuple[str, int, int]]) -> Scene:
    """Return 20 cards, and pods for shares of them. wanted: name, size and how many."""

    return Scene(
        shapes.cluster([shapes.shareable(4)] * 5),
        lambda: [
            pod for name, size, count in wanted for pod in shapes.gang(count, shapes.share(f"{size}Gi"), name=name)
        ],
    )


def _one_short() -> Scene:
    """One pod for nine GPUs, and 5,000 nodes of eight, each with another use of them."""
    random = Random(5)  # noqa: S311 - not for secrets
    cluster = shapes.cluster([shapes.whole(8)] * 5_000)
    taken = {device: Holder(claim="others/claim") for device in shapes.device_ids(cluster) if random.random() < 0.5}
    return Scene(replace(cluster, taken=taken), lambda: shapes.gang(1, shapes.request(9)))


HARD = {
    "5 and 4 of 8, one too many": _odd_one_out,
    "13 times more than half of 12 nodes": _more_than_half,
    "one partition too many": _one_partition_too_many,
    "one slice too few": _one_slice_too_few,
    "3 of one NUMA node, one too many": _numa,
    "eight pairs under seven roots": _roots,
    "a shared claim, no node for all": _shared_claim,
    "six times six alternatives": _alternatives,
    "7, 5 and 3 on nodes of seven sizes": _bins,
    "CPU and memory, not GPUs": _resources,
    "shares of cards, one too many": _consumed,
    "shares of cards, too large": _too_much_consumed,
    "9 GPUs, 5,000 part-full nodes of 8": _one_short,
}


# What they are made of.


def _rooted(root: int, at: int) -> Json:
    return {"name": f"gpu-{root:02}-{at}", "attributes": {ROOT: {"string": f"pci-{root:02}"}}}


def _paired(name: str, pairs: int) -> PodDemand:
    """Return a pod with a claim for each of so many pairs of GPUs that share a root."""
    spec = {"devices": {"requests": [shapes.request(2)], "constraints": [{"matchAttribute": ROOT}]}}
    pod = shapes.pod(name, spec)
    return replace(pod, claims=tuple(shapes.claim(f"{name}-{at}", spec) for at in range(pairs)))
