"""Claims as this leader has written them, for as long as its view shows an older version.

A view follows the cluster by watching and is late by moments. A cycle that did not know what the one before has written
would write it again, or give the same devices to somebody else. kube-scheduler has an assume cache for the same reason.
"""

from dataclasses import dataclass, field, replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Meta
from admission.api.snapshot import Snapshot


@dataclass(slots=True)
class AssumedClaims:
    """What was written and is not seen yet, by `namespace/name`. One for each leader."""

    _claims: dict[str, Claim] = field(default_factory=dict)

    def note(self, claim: Claim | None) -> None:
        """Remember a claim as the API server returned it; None for one that was gone."""
        if claim is not None:
            self._claims[claim.meta.key] = claim

    def over(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what it does not show yet; forget what it shows."""
        self._claims = {
            key: claim
            for key, claim in self._claims.items()
            if (shown := snapshot.claims.get(key)) is not None and _is_behind(shown.meta, claim.meta)
        }
        return replace(snapshot, claims={**snapshot.claims, **self._claims}) if self._claims else snapshot


def _is_behind(shown: Meta, written: Meta) -> bool:
    """Whether the same object is shown in an older version. Versions grow, which Kubernetes promises since 1.35."""
    if shown.uid != written.uid:
        return False
    versions = shown.resource_version, written.resource_version
    return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])
