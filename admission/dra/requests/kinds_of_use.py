"""The kinds of use by which nodes are put in order: whose devices they leave whole, and for whom.

A `Tie` stands for claims that tie several devices together, as those of one PCIe root, a `Selection` for requests that
select some devices only; each has a weight, by how much pods ask for. `scheduling.cache.device_companions` counts
them; `dra.equivalence.tied_devices` and `selected_devices` say what a node's devices are worth to them. What a claim
uses of one device is in `device_use`.
"""

from typing import NamedTuple

from admission.api.kubernetes.devices import Device
from admission.dra.inventory.selectors import Texts
from admission.dra.requests import constraints

THOUSAND = 1000
"""The weight of a kind of claims if all devices are asked for by them."""

MOST_TIES = 8
"""The most kinds of claims that are looked at: those that ask for the most devices."""

LEAST_WEIGHT = 10
"""Kinds that weigh less are not looked at: with every change of what is, the nodes are put in order again."""

EVEN = 16
"""The weight of all sets of selectors that select a device, together, in the mean of all devices."""

MOST_SELECTIONS = 16
"""The most sets of selectors that are looked at: those that ask for the most devices."""


class Tie(NamedTuple):
    """So many devices that texts select, with one value of an attribute.

    weight: in thousandths, the part of all devices asked for that pods with such claims ask for.
    """

    attribute: str
    texts: Texts
    devices: int
    weight: int


Ties = tuple[Tie, ...]


class Selection(NamedTuple):
    """Devices that texts select, of which others cannot be used by those who ask for them.

    weight: in sixteenths, for how many devices such requests ask for each that they may have, where all requests
    together ask for as many as there are.
    """

    texts: Texts
    weight: int


KindsOfUse = tuple[Tie | Selection, ...]


def group_of(device: Device, driver: str, attribute: str, *, lists: bool) -> object:
    """Return by what a tie groups a device; None if it is in no group. lists: whether lists are compared."""
    if device.allows_multiple or device.consumes:
        return None
    value = constraints.value_of(device, driver, attribute, lists=lists)
    return None if value == constraints.UNREADABLE else value
