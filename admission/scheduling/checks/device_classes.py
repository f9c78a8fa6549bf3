"""Checks of the device classes that a gang's claims ask for: that they exist, and that a Meter counts them."""

from collections.abc import Collection

from admission.api.kubernetes import devices
from admission.api.muster.queues import Queue, UnmeteredClasses
from admission.api.snapshot import Snapshot
from admission.api.values.reasons import Denial, DenyReason, Hold, HoldReason
from admission.dra.metering.device_meters import Meters
from admission.dra.requests.gang_request import PodDemand


def missing(demands: tuple[PodDemand, ...], snapshot: Snapshot) -> Hold | None:
    """Hold a gang with a request for a class that does not exist; kube-scheduler gives up on its pod.

    It precedes the check of quota, since the charge of a misspelt class means nothing.
    """
    for demand in demands:
        for claim in demand.claims:
            for request in claim.spec.requests if claim.allocation is None else ():
                for alternative in request.alternatives:
                    name = alternative.device_class
                    if not name or name in snapshot.classes:
                        continue
                    message = (
                        f"pod {demand.pod.meta.name}: request {request.name} of claim {claim.meta.name} asks for device"
                        f" class {name}, {devices.absent_class(name, snapshot.classes)}"
                    )
                    details = {"pod": demand.pod.meta.name, "claim": claim.meta.name, "request": request.name}
                    return Hold(HoldReason.NO_FEASIBLE_PLACEMENT, message, {**details, "deviceClass": name})
    return None


def unmetered(demands: tuple[PodDemand, ...], queue: Queue, meters: Meters, classes: Collection[str]) -> Denial | None:
    """Refuse claims of a class that no meter counts, unless the queue allows them.

    A class that does not exist is reported as missing and before others, since no Meter would help. classes: those that
    exist.
    """
    if queue.unmetered is UnmeteredClasses.ALLOW:
        return None
    for demand in demands:
        for claim in demand.claims:
            name = min(meters.unmetered(claim.spec), key=lambda one: one in classes, default=None)
            if name is None:
                continue
            advice = "which no Meter counts; add it to the sources of a Meter, or set unmeteredClasses: Allow on queue "
            advice += queue.name
            if name and name not in classes:
                advice = devices.absent_class(name, classes, uncounted=True)
            message = f"claim {claim.meta.key} asks for class {name}, {advice}"
            return Denial(DenyReason.UNMETERED_CLASS, message, {"class": name, "claim": claim.meta.key})
    return None
