"""What the door keeps from one review to the next, since it is costly to find out and seldom changes.

A snapshot's mappings are never changed in place, and one that did not change is the same object in the next snapshot
(`cache.indexer`). So their identity says whether what was found out still holds; a stale answer is not possible.
"""

from admission.api.snapshot import Snapshot
from admission.claimpolicy.match import Policies
from admission.claimpolicy.pods.pod_rules import Rulings
from admission.podpolicy.admission import Passed
from admission.podpolicy.queue_limits import Limits
from admission.podpolicy.queue_selection import Defaults


class ReviewCaches:
    """One for the process; not shared between threads."""

    def __init__(self) -> None:
        self.rulings = Rulings()
        self._defaults: Defaults | None = None
        self._limits: Limits | None = None
        self._passed: Passed = {}
        self._policies: Policies | None = None
        self._for_policies: tuple[object, object] = (None, None)
        self._for_defaults: tuple[object, object] = (None, None)
        self._for_limits: tuple[object, object] = (None, None)

    def defaults(self, snapshot: Snapshot) -> Defaults:
        """Return the default queues of the namespaces."""
        queues, namespaces = self._for_defaults
        if self._defaults is None or queues is not snapshot.queues or namespaces is not snapshot.namespaces:
            self._defaults = Defaults(snapshot.queues.values(), snapshot.namespaces)
            self._for_defaults = snapshot.queues, snapshot.namespaces
        return self._defaults

    def limits(self, snapshot: Snapshot) -> Limits:
        """Return what the queues could hold."""
        queues, meters = self._for_limits
        if self._limits is None or queues is not snapshot.queues or meters is not snapshot.meters:
            self._limits = Limits.of(snapshot.queues.values(), snapshot.meters.values())
            self._for_limits = snapshot.queues, snapshot.meters
            self._passed = {}
        return self._limits

    def passed(self, snapshot: Snapshot) -> Passed:
        """Return the claims that passed the door while queues and meters were as they are."""
        self.limits(snapshot)
        return self._passed

    def policies(self, snapshot: Snapshot) -> Policies:
        """Return the ClaimPolicies, compiled."""
        policies, namespaces = self._for_policies
        if self._policies is None or policies is not snapshot.policies or namespaces is not snapshot.namespaces:
            self._policies = Policies.of(snapshot.policies, snapshot.namespaces, self._policies)
            self._for_policies = snapshot.policies, snapshot.namespaces
        return self._policies
