"""What the metrics show of every admission cycle."""

from collections import Counter
from collections.abc import Callable

from admission.api.names import QueueName
from admission.api.reasons import HoldReason
from admission.api.reports import QueueReport
from admission.flow.desks import Result
from admission.telemetry.metrics import Metrics


def observer(metrics: Metrics) -> Callable[[Result, float], None]:
    """Return what shows every cycle in the metrics, and forgets queues that are gone."""
    shown: set[QueueName] = set()

    def observe(result: Result, seconds: float) -> None:
        held = Counter(gang.hold.reason for gang in result.gangs if gang.hold is not None)
        reasons = {reason: held[reason] for reason in HoldReason if reason in held}
        metrics.cycled(seconds, admitted=len(result.granted), held=reasons)
        metrics.booked(behind=result.behind, unposted=result.unposted)
        metrics.failed(defect.during for defect in result.defects)
        _show(result.queues)

    def _show(queues: tuple[QueueReport, ...]) -> None:
        names = {queue.name for queue in queues}
        for queue in queues:
            metrics.queue(queue)
            shown.add(queue.name)
        for gone in [name for name in shown if name not in names]:
            metrics.forget(gone)
            shown.discard(gone)

    return observe
