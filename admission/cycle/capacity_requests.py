"""The ProvisioningRequests of gangs for which nodes are asked: made before a gate is opened, deleted with their gangs.

The books say which requests there have to be, so a leader that dies at any write is followed by one that makes what is
missing and deletes what is left over.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from admission.api.capacity.provisioning_requests import Answer, ProvisioningRequest
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import Hold
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.in_flight import InFlight, RequestState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.dra.planner import node_filters
from admission.errors import ConflictError, FixError, GoneError, RetryError
from admission.lifecycle import placement_progress
from admission.ports import CapacityRequests
from admission.scheduling.capacity import capacity_requests, node_needs, unread_shapes
from admission.scheduling.capacity.capacity_requests import Asked, CapacityRequest
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKeeper:
    """Makes and deletes ProvisioningRequests, and says what they keep waiting."""

    requests: CapacityRequests
    mirror: LedgerMirror
    writer: BulkWriter
    state: RequestState
    in_flight: InFlight

    async def ask(self, inputs: CycleInputs, groups: Iterable[Group]) -> None:
        """Make the requests that are missing, of pods whose gates are all closed; failed ones are tried again."""
        missing: list[CapacityRequest] = []
        for group in groups:
            for one in self._asked(inputs, group):
                is_there = one.key in inputs.snapshot.provisioning_requests or one.key in self.state.made
                if is_there or self._is_open(group, one) or next(unread(inputs, group), None) is not None:
                    continue
                provisioning = inputs.snapshot.queues[group.queue].provisioning
                request = capacity_requests.build(group, one, provisioning, inputs.snapshot.shapes)
                if request.pod_sets:
                    missing.append(request)

        async def create(request: CapacityRequest) -> None:
            try:
                await self.requests.create(request)
                self.state.note_made(request.key)
            except (RetryError, FixError, GoneError) as error:
                self.state.note_trouble(request.key, error)

        await self.writer.each(missing, create)

    async def withdraw(self, inputs: CycleInputs) -> None:
        """Delete the requests of reservations that are over. What fails is tried again by the next cycle."""
        seen, placements = inputs.snapshot.provisioning_requests, self.mirror.book.placements.values()
        if not (seen or self.state.has_any or self.state.is_cleanup_due):
            return
        needed = {one.key for each in placements for one in capacity_requests.asked(each, inputs.snapshot)}
        self.state.forget(seen, needed)
        if self.state.is_cleanup_due:
            await self._delete_unused({*seen, *needed})
        unneeded = capacity_requests.unneeded(seen.values(), placements, inputs.snapshot)

        async def delete(request: ProvisioningRequest) -> None:
            try:
                await self.requests.delete(request)
            except (RetryError, FixError, GoneError) as error:
                self.state.note_trouble(request.meta.key, error)

        await self.writer.each(unneeded, delete)

    async def _delete_unused(self, kept: Collection[str]) -> None:
        """Delete PodTemplates of requests that were never made. What the API server refuses is not tried again."""
        try:
            await self.requests.delete_unused(kept)
        except RetryError:
            return
        except (FixError, GoneError):
            pass  # the writer logs it
        self.state.note_swept()

    def answers(self, inputs: CycleInputs, group: Group) -> Iterator[tuple[Asked, Hold | ConflictError | FixError]]:
        """Yield why pods wait for their request, or have to ask again; nothing for those whose gates may open."""
        queue = inputs.snapshot.queues.get(group.queue)
        if queue is not None and not node_needs.asks_for_nodes(queue):
            nobody = ConflictError(f"queue {queue.name} asks for no nodes any more (spec.provisioning.mode None)")
            asked = capacity_requests.asked(group.placement, inputs.snapshot) if group.placement is not None else ()
            yield from ((one, nobody) for one in asked if not self._is_open(group, one))
            return
        for one in self._asked(inputs, group):
            request = inputs.snapshot.provisioning_requests.get(one.key)
            is_open = self._is_open(group, one)
            if request is None and is_open:
                continue  # somebody has deleted it after its capacity was there
            if request is None:
                failure = capacity_requests.unserved(inputs.snapshot)
            else:
                failure = capacity_requests.failure(request, is_open=is_open, runs=_runs(group, one))
            if failure:
                yield one, FixError(failure)
                continue
            if request is not None and request.meta.deleted is not None and is_open:
                continue
            changed = _changed(request, inputs) if request is not None and not is_open else None
            if changed is not None:
                yield one, changed
                continue
            waits = group.placement and capacity_requests.hold(
                group.placement, one, request, self.state.trouble(one.key)
            )
            if waits:
                yield one, waits

    def annotations(self, inputs: CycleInputs, groups: Sequence[Group]) -> Mapping[Uid, Mapping[str, str]]:
        """Return the annotations of the pods that consume requests, by pod: those that are let in towards a shape."""
        found: dict[Uid, Mapping[str, str]] = {}
        for group in groups:
            for one in self._asked(inputs, group):
                request = inputs.snapshot.provisioning_requests.get(one.key)
                if request is not None:
                    found.update(dict.fromkeys(one.pods, capacity_requests.annotations(request)))
        return found

    def _asked(self, inputs: CycleInputs, group: Group) -> tuple[Asked, ...]:
        """Return what a gang has to have requests for."""
        if group.placement is None or not capacity_requests.asks_by_request(inputs.snapshot.queues.get(group.queue)):
            return ()
        return capacity_requests.asked(group.placement, inputs.snapshot)

    def _is_open(self, group: Group, one: Asked) -> bool:
        """Return whether a gate of these pods is open, also if the view does not show it yet."""
        opened = self.in_flight.opened
        return any(pod.meta.uid in one.members and (not pod.gated or pod.meta.uid in opened) for pod in group.pods)


Joining = Mapping[GangUid, Sequence[tuple[Sequence[Pod], str]]]
"""Pods that have to be taken back of gangs that go on without them, and why."""


def revoked(inputs: CycleInputs) -> tuple[Mapping[GangUid, str], Joining]:
    """Return why gangs have to be taken back that were let in, by what their requests say now; and which pods alone."""
    seen = inputs.snapshot.provisioning_requests
    ending = {Answer.FAILED, Answer.CAPACITY_REVOKED}
    if not any(request.is_ours and ending & request.answers.keys() for request in seen.values()):
        return {}, {}
    found: dict[GangUid, str] = {}
    joining: dict[GangUid, list[tuple[Sequence[Pod], str]]] = {}
    for group in inputs.groups:
        for one in capacity_requests.asked(group.placement, inputs.snapshot) if group.placement is not None else ():
            request = seen.get(one.key)
            # Pods all of whose gates are closed are requeued where they would be opened, and are not deleted.
            if request is None or not any(pod.meta.uid in one.members and not pod.gated for pod in group.pods):
                continue
            why = capacity_requests.failure(request, is_open=True, runs=_runs(group, one))
            waiting = [pod for pod in group.pods if pod.meta.uid in one.members and pod.phase == "Pending"]
            if why and not one.is_joining:
                found[group.uid] = why
            elif why and waiting:
                joining.setdefault(group.uid, []).append((waiting, why))
    return found, joining


def shapeless(inputs: CycleInputs) -> tuple[Mapping[GangUid, str], Joining]:
    """Return why gangs have to be taken back that were let in towards a shape which is gone; and which pods alone.

    Nobody can tell any more which nodes are theirs, so others would be given them. Those stay whose nodes are there.
    """
    found: dict[GangUid, str] = {}
    joining: dict[GangUid, list[tuple[Sequence[Pod], str]]] = {}
    for group in inputs.granted:
        placement = group.placement
        if placement is None or placement_progress.nodes_to_come(group).keys() <= inputs.snapshot.shapes.keys():
            continue
        for one in capacity_requests.asked(placement, inputs.snapshot):
            opened = [pod for pod in group.pods if pod.meta.uid in one.pods and not pod.gated]
            gone = [_gone_shape(pod, placement, inputs) for pod in opened]
            shape = next(filter(None, gone), None)
            waiting = [pod for pod in group.pods if pod.meta.uid in one.members and pod.phase == "Pending"]
            why = f"NodeShape {shape}, of which nodes were asked for, is gone"
            if shape is not None and not one.is_joining:
                found[group.uid] = why
            elif shape is not None and waiting:
                joining.setdefault(group.uid, []).append((waiting, why))
    return found, joining


def unread(inputs: CycleInputs, group: Group) -> Iterator[tuple[Asked, Hold]]:
    """Yield why pods wait behind their gates whose NodeShape cannot be read: nobody knows the labels of their nodes."""
    snapshot, placement = inputs.snapshot, group.placement
    if placement is None or not unread_shapes.any_unread(snapshot):
        return
    gated = {pod.meta.uid for pod in group.pods if pod.gated}
    for one in capacity_requests.asked(placement, snapshot):
        asked_of = placement_progress.asked_for(placement.seats[uid].node for uid in one.pods & gated)
        why = {name: why for name in sorted(asked_of) if (why := unread_shapes.reason(name, snapshot))}
        if why:
            yield one, capacity_requests.hold_unread(asked_of, *next(iter(why.items())))


def _changed(request: ProvisioningRequest, inputs: CycleInputs) -> ConflictError | None:
    """Return that the nodes which are asked for are none of their shape any more, to which gates would be opened."""
    shape = capacity_requests.changed_shape(request, inputs.snapshot.shapes)
    return (
        None if shape is None else ConflictError(f"matchLabels of NodeShape {shape} changed since nodes were asked for")
    )


def _gone_shape(pod: Pod, placement: Placement, inputs: CycleInputs) -> str | None:
    """Return the shape that is gone, of whose nodes none is there for a pod that waits for one."""
    seat = placement.seats[pod.meta.uid]
    shape, since = names.shape_of(seat.node), placement_progress.nodes_asked_at(seat, placement)
    if pod.node or shape is None or since is None or not unread_shapes.is_gone(shape, inputs.snapshot):
        return None
    since = since.replace(microsecond=0)  # as the API server writes when nodes were made
    new = (node for node in inputs.snapshot.nodes.values() if node.meta.created >= since and not node.leaving)
    return None if any(node_filters.matches(pod, node) for node in new) else shape


def _runs(group: Group, one: Asked) -> bool:
    return any(pod.phase == "Running" for pod in group.pods if pod.meta.uid in one.members)
