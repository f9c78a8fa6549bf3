"""What kube-scheduler gives a claim, as the books have it planned: for the cluster in `in_memory`."""

import uuid
from collections.abc import Mapping
from fractions import Fraction

from admission.api.kubernetes.claims import AllocatedDevice, Allocation, Claim
from admission.api.kubernetes.devices import Device, DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding
from admission.api.values.names import NodeName, Uid
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.dra.compatibility import Features
from admission.dra.requests import device_use


def allocation(claim: Claim, holding: Holding, node: NodeName, devices: Mapping[DeviceId, Device]) -> Allocation:
    """Return the allocation that kube-scheduler writes for devices of one node."""
    term = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=(node,)),))
    return Allocation(
        devices=tuple(_allocated(claim, at, given, devices) for at, given in enumerate(holding.devices)),
        node_selector=NodeSelector(terms=(term,)),
    )


def _allocated(claim: Claim, at: int, given: RequestDevice, devices: Mapping[DeviceId, Device]) -> AllocatedDevice:
    """Return a granted device as it is allocated: whole, a share of it, or nothing of it, under admin access."""
    taken = [*device_use.from_plan([given], claim.spec, devices, Features())]
    shared = [use for use in taken if use.shared]
    return AllocatedDevice(
        given=given,
        admin_access=not taken,
        share_id=Uid(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{claim.meta.uid}/{at}"))) if shared else "",
        consumed={name: Fraction(amount) for use in shared for name, amount in (use.share or {}).items()},
    )
