"""The kube-scheduler whose decisions are reproduced: its release, feature gates and known bugs.

`1.34` stands for v0.34.4 of `k8s.io/dynamic-resource-allocation`, `1.35` for v0.35.4, `1.36` for v0.36.3, `1.37` for
v0.37.1, which also stands in for later releases. 1.34 and 1.35 look at pools and slices in random order: which devices
they give is predicted where that order makes no difference.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from admission.device_cel import environment


class Release(StrEnum):
    """The minor versions of Kubernetes whose allocator is reproduced."""

    V1_34 = "1.34"
    V1_35 = "1.35"
    V1_36 = "1.36"
    V1_37 = "1.37"

    @property
    def minor(self) -> int:
        return int(self.value.partition(".")[2])

    @property
    def before_1_36(self) -> bool:
        """Whether the release is older than 1.36; its allocator lacks the features that 1.36 has on by default."""
        return self.minor < 36

    @property
    def before_1_37(self) -> bool:
        """Whether it decides as 1.36 does where 1.36 and 1.37 differ by rules, defects aside."""
        return self.minor < 37


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The feature gates of kube-scheduler that the allocator knows, as a default 1.36 or 1.37 has them.

    prioritized_list: `firstAvailable`. partitionable: devices with shared counters. binding_conditions needs both
    DRADeviceBindingConditions and DRAResourceClaimDeviceStatus. extended_resources: claims made for extended resources.
    fractional_ranges: on by default only where the minimum compatibility version is 1.37 or later.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable: bool = True
    taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    extended_resources: bool = True
    list_attributes: bool = False
    fractional_ranges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBugs:
    """Defects of the upstream allocator that change answers, each with the pull request that fixes it.

    distinct_forgets: a distinctAttribute constraint remembers only one value per request (kubernetes #140600).
    counters_by_pool_name: the counters of two drivers are confused if their pools have one name (#140435).
    foreign_counters: slices with counters matter on every node, so a broken pool of another node matters (#140436).
    unsharable_counters: a second share of a device with counters and no capacity draws the counters again.
    all_by_what_is_left: `All` leaves out a device with too little capacity left, and takes the rest.
    unordered: pools, and slices of a pool, come in random order.
    all_forgets_alternative: an alternative with mode All that is not the first takes one device, and goes on as the
    first.
    incomplete_serve: a pool is complete for a node by the slices that are for it, and gives devices if it is not.
    lists_only_shrink: the values that list attributes have in common are not restored when the search steps back.
    admin_pays_counters: a request with admin access needs free counters (#140729). In every release so far.
    vanished_are_free: what an allocated device drew from counters is free again when it leaves its slice (#140802). In
    every release so far.
    """

    distinct_forgets: bool = False
    counters_by_pool_name: bool = False
    foreign_counters: bool = False
    unsharable_counters: bool = False
    all_by_what_is_left: bool = False
    lists_only_shrink: bool = False
    unordered: bool = False
    all_forgets_alternative: bool = False
    incomplete_serve: bool = False
    admin_pays_counters: bool = True
    vanished_are_free: bool = True


AS_OF_1_36 = KnownBugs(
    distinct_forgets=True,
    counters_by_pool_name=True,
    foreign_counters=True,
    unsharable_counters=True,
    all_by_what_is_left=True,
    lists_only_shrink=True,
)
AS_OF_1_35 = replace(AS_OF_1_36, unordered=True, all_forgets_alternative=True)
AS_OF_1_34 = replace(AS_OF_1_35, incomplete_serve=True)
AS_OF_1_37 = KnownBugs()
FIXED = KnownBugs(admin_pays_counters=False, vanished_are_free=False)
"""Every known defect fixed."""

_KNOWN_BUGS = {
    Release.V1_34: AS_OF_1_34,
    Release.V1_35: AS_OF_1_35,
    Release.V1_36: AS_OF_1_36,
    Release.V1_37: AS_OF_1_37,
}

_FEATURES_OF_1_35 = Features(
    partitionable=False, taints=False, binding_conditions=False, consumable_capacity=False, extended_resources=False
)


BY_VERSION = tuple(Release)
"""The releases that a cluster's version chooses, oldest first; the first has the first `resource.k8s.io/v1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerProfile:
    """How one kube-scheduler decides. known_bugs: those of the release, unless others are given.

    stands_in_for: the version of a cluster, such as `1.38`, that is newer than every known release and is taken for the
    newest one; empty for a cluster of the release itself.
    """

    release: Release = Release.V1_37
    features: Features = field(default_factory=Features)
    known_bugs: KnownBugs = AS_OF_1_37
    stands_in_for: str = ""

    @property
    def cel(self) -> environment.Profile:
        """Return how this kube-scheduler compiles selectors."""
        features = self.features
        return environment.Profile(
            release=self.release.minor,
            lists=features.list_attributes,
            consumable=features.consumable_capacity,
        )

    @property
    def mismatch(self) -> str:
        """Return in words why the cluster's kube-scheduler may decide otherwise; empty if its release is known."""
        if not self.stands_in_for:
            return ""
        return (
            f"Kubernetes {self.stands_in_for} is newer than {self.release}, the newest whose kube-scheduler this Muster"
            " knows"
        )

    def with_known_bugs(self, known_bugs: KnownBugs) -> "SchedulerProfile":
        return replace(self, known_bugs=known_bugs)


def profile(release: Release, features: Features | None = None) -> SchedulerProfile:
    """Return the profile of a release with its own defects, and its default features unless others are given."""
    default = _FEATURES_OF_1_35 if release.before_1_36 else Features()
    return SchedulerProfile(release=release, features=features or default, known_bugs=_KNOWN_BUGS[release])


NEWEST = profile(Release.V1_37)
"""The default without a choice and without a cluster."""

AUTO = "auto"
CHOICES = (AUTO, *Release)
"""The values that an operator may choose: that of the API server's version, or a release."""


def named(choice: str) -> SchedulerProfile | None:
    """Return the profile of one of CHOICES; None for `auto`."""
    return None if choice == AUTO else profile(Release(choice))


def of_version(version: str) -> SchedulerProfile | None:
    """Return the profile of a Kubernetes version such as `v1.37.1`; None if it is no version or older than all.

    A version that is newer than all has the profile of the newest, which stands in for it.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    found = next((release for release in BY_VERSION if (major, minor) == (1, release.minor)), None)
    if found is not None:
        return profile(found)
    newest = BY_VERSION[-1]
    return replace(profile(newest), stands_in_for=f"{major}.{minor}") if (major, minor) > (1, newest.minor) else None
