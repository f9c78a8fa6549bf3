"""Values that a process keeps between AdmissionReviews, since they are expensive to derive and seldom change."""

from collections.abc import Collection

from admission.api.muster.gangs import Gang
from admission.api.snapshot import Snapshot
from admission.api.values.names import QueueName
from admission.claimpolicy.match import Policies
from admission.claimpolicy.pods.pod_rules import Rulings
from admission.device_cel.selector_findings import SelectorFindings
from admission.incremental import Inverted, Memo
from admission.podpolicy import workload_admission
from admission.podpolicy.admission import PassedClaims
from admission.podpolicy.queue_limits import Limits
from admission.podpolicy.queue_selection import Defaults


class ReviewCaches:
    """The caches of one process; not shared between threads. Each value is derived from the mappings in its method."""

    def __init__(self) -> None:
        self.rulings = Rulings()
        self.selectors = SelectorFindings()
        self._defaults = Memo[None, Defaults]()
        self._limits = Memo[None, Limits]()
        self._passed = Memo[None, PassedClaims]()
        self._policies = Memo[None, Policies]()
        self._lines = Inverted[Gang, QueueName, None](workload_admission.line_of)
        self._compiled: Policies | None = None

    def defaults(self, snapshot: Snapshot) -> Defaults:
        """Return the default queues of the namespaces."""
        queues, namespaces = snapshot.queues, snapshot.namespaces
        return self._defaults.get(None, (queues, namespaces), lambda: Defaults(queues.values(), namespaces))

    def limits(self, snapshot: Snapshot) -> Limits:
        """Return the limits of the queues."""
        queues, meters = snapshot.queues, snapshot.meters
        return self._limits.get(None, (queues, meters), lambda: Limits.build(queues.values(), meters.values()))

    def passed(self, snapshot: Snapshot) -> PassedClaims:
        """Return the claims that passed their checks under the present queues and meters; reviews add to it."""
        return self._passed.get(None, (snapshot.queues, snapshot.meters), dict)

    def lines(self, snapshot: Snapshot) -> Collection[QueueName]:
        """Return the queues in which gangs wait for their turn."""
        return self._lines.update(snapshot.gangs).keys()

    def policies(self, snapshot: Snapshot) -> Policies:
        """Return the compiled ClaimPolicies; unchanged policies are not compiled again."""
        return self._policies.get(None, (snapshot.policies, snapshot.namespaces), lambda: self._compile(snapshot))

    def _compile(self, snapshot: Snapshot) -> Policies:
        self._compiled = Policies.build(snapshot.policies, snapshot.namespaces, self._compiled)
        return self._compiled
