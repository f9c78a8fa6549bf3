"""The allocations that kube-scheduler would write for the ledger's plan, for the cluster in `in_memory`."""

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
    """Return kube-scheduler's allocation of devices on one node."""
    term = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=(node,)),))
    return Allocation(
        devices=tuple(
            _allocated(claim, at, request_device, devices) for at, request_device in enumerate(holding.devices)
        ),
        node_selector=NodeSelector(terms=(term,)),
    )


def _allocated(
    claim: Claim, at: int, request_device: RequestDevice, devices: Mapping[DeviceId, Device]
) -> AllocatedDevice:
    """Return a planned device as an allocation result: a whole device, a share, or no use at all with admin access."""
    uses = [*device_use.from_plan([request_device], claim.spec, devices, Features())]
    shared = [use for use in uses if use.shared]
    return AllocatedDevice(
        given=request_device,
        admin_access=not uses,
        share_id=Uid(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{claim.meta.uid}/{at}"))) if shared else "",
        consumed={name: Fraction(amount) for use in shared for name, amount in (use.share or {}).items()},
    )
