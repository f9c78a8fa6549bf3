"""VolumeZone: bound volumes with labels of zones or regions are used there only (`plugins/volumezone`, v1.37)."""

from admission.api.kubernetes.nodes import Node
from admission.api.storage.persistent_volumes import BETA_REGION, BETA_ZONE, REGION, ZONE
from admission.filters.pod_claims import PodClaims
from admission.filters.refusal import Refusal, Rule

_NAMED_SINCE = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class VolumeZone:
    """The filter for one pod."""

    __slots__ = ("_zones",)

    def __init__(self, claims: PodClaims) -> None:
        self._zones = [
            (claim.meta.name, key, values) for claim, volume in claims.bound for key, values in volume.zones.items()
        ]

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return bool(self._zones)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node. A node without any such label takes every volume."""
        labels = node.meta.labels
        if all(key not in labels for key in (BETA_ZONE, BETA_REGION, ZONE, REGION)):
            return None
        for claim, key, values in self._zones:
            value = labels.get(key, labels.get(_NAMED_SINCE.get(key, key)))
            if value not in values:
                text = f"its volume is in {key} {', '.join(sorted(values))}"
                return Refusal(Rule.VOLUME_ZONE, claim, text=text)
        return None
