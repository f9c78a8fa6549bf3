"""What kube-scheduler will ask of a gang's pods that Muster does not judge, by name."""

from collections.abc import Iterable

from admission.api.kubernetes.pods import Pod

FILTERS = "VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits"

MOST = 8
"""The most volumes that are named before the rest are counted."""


def of_pods(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return a sentence for each thing that is not judged; none where every rule of the pods is."""
    first: dict[str, str] = {}
    for pod in pods:
        for volume in pod.rules.volumes if not pod.finished else ():
            first.setdefault(volume.text, pod.meta.name)
    found = [f"{volume} of pod {pod} ({FILTERS})" for volume, pod in first.items()]
    rest = len(found) - MOST
    return (*found[:MOST], f"{rest} more volumes ({FILTERS})") if rest > 0 else tuple(found)
