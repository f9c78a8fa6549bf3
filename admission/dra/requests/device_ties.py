"""Kinds of claims that tie several devices together by `matchAttribute`, as those of one PCIe root.

`dra.equivalence.tied_devices` says what a node's free devices are worth to them.
"""

from typing import NamedTuple

from admission.dra.inventory.selectors import Texts

THOUSAND = 1000
"""The weight of a kind of claims if all devices are asked for by them."""

MOST_TIES = 8
"""The most kinds of claims that are looked at: those that ask for the most devices."""

LEAST_WEIGHT = 10
"""Kinds that weigh less are not looked at: with every change of what is, the nodes are put in order again."""


class Tie(NamedTuple):
    """So many devices that texts select, with one value of an attribute.

    weight: in thousandths, the part of all devices asked for that pods with such claims ask for.
    """

    attribute: str
    texts: Texts
    devices: int
    weight: int


Ties = tuple[Tie, ...]
