"""What claims request, in words and numbers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from admission.api.values.names import NodeName
from admission.dra.requests.requests import Mode, Option, ParsedClaim, ParsedRequest, RequestAlternatives

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


def needs(claims: Iterable[ParsedClaim]) -> dict[ParsedRequest, int]:
    """Return the least devices needed per parsed request: summed over requests without alternatives, else one's own."""
    needs: dict[ParsedRequest, int] = {}
    for claim in claims:
        for request in claim.requests:
            if len(request.options) == 1 and request.options[0].plain:
                parsed = request.options[0].parsed
                needs[parsed] = needs.get(parsed, 0) + request.options[0].count
            else:
                for option in request.options:
                    least = option.count if option.plain else 1
                    needs[option.parsed] = max(needs.get(option.parsed, 0), least)
    return needs
