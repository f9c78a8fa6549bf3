"""What claims request, in words and numbers."""

from collections.abc import Sequence
from typing import NamedTuple

from admission.api.values.names import NodeName
from admission.dra.diagnosis import rule_refusals
from admission.dra.requests.requests import Mode, Option, ParsedClaim, RequestAlternatives

MOST_NAMED = 4
"""The most alternatives of which is said what they lack."""


class DeviceShortage(NamedTuple):
    """A request, or an alternative of one, of which no node has enough. free, matching: on the node with most free."""

    option: Option
    needed: int
    node: NodeName
    free: int
    matching: int

    @property
    def amount(self) -> str:
        number = "all devices" if self.option.mode is Mode.ALL else counted(self.needed)
        return f"{number} of class {self.option.parsed.device_class}"

    @property
    def text(self) -> str:
        most = f"{self.node} has most free, {self.free} of {self.matching}" if self.matching else "none match"
        return f"{self.option.name} needs {self.amount}, of which {most}"


def counted(devices: int) -> str:
    return f"{devices} {'device' if devices == 1 else 'devices'}"


def others(shortages: Sequence[DeviceShortage]) -> str:
    """Return what the alternatives after the first one lack, to be added to what that lacks."""
    texts = [one.text for one in shortages[1:MOST_NAMED]]
    rest = len(shortages) - MOST_NAMED
    texts += [f"{rest} more {'lacks' if rest == 1 else 'lack'} devices as well"] if rest > 0 else []
    return f": {'; '.join(texts)}" if texts else ""


def text(request: RequestAlternatives) -> str:
    """Return a request in words."""
    return " or ".join(
        f"{'all' if not option.plain and not option.admin else option.count} of class {option.parsed.device_class}"
        for option in request.options
    )


class Need(NamedTuple):
    """The devices that a pod needs at least of those that match. parts: a claim's number, its option and how many."""

    devices: int
    parts: tuple[tuple[int, Option, int], ...]

    def place(self, claims: Sequence[str]) -> str:
        """Return the requests that need the devices, of several with how many. claims: the names of the pod's."""
        if len(self.parts) == 1:
            return f"request {self.parts[0][1].name} of {claims[self.parts[0][0]]}"
        places = [f"{devices} for request {option.name} of {claims[claim]}" for claim, option, devices in self.parts]
        return rule_refusals.names_text(places)


def need(option: Option, claim: int, claims: Sequence[ParsedClaim], *, alone: bool) -> Need:
    """Return what an option needs, with the requests that need equal devices beside it.

    claim: the number of its claim. alone: whether the others are left out: it is one of alternatives, or devices can be
    shared. A request with admin access takes devices in use as well, but none that its claim has.
    """
    if alone or option.mode is Mode.ALL:
        least = option.count if option.mode is Mode.EXACT else 1
        return Need(least, ((claim, option, least),))
    parts = tuple(
        (number, other, other.count)
        for number, one in enumerate(claims)
        for request in one.requests
        for other in request.options
        if len(request.options) == 1 and other.parsed == option.parsed and other.mode is Mode.EXACT
        if (number == claim if option.admin else not other.admin)
    )
    return Need(sum(devices for _, _, devices in parts), parts)
