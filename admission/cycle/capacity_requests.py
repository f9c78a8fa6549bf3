"""The ProvisioningRequests of gangs for which nodes are asked: made before a gate is opened, deleted with their gangs.

The books say which requests there have to be, so a leader that dies at any write is followed by one that makes what is
missing and deletes what is left over.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.api.capacity.provisioning_requests import Answer, ProvisioningRequest
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import Hold
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.in_flight import RequestState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.errors import FixError, GoneError, RetryError
from admission.ports import CapacityRequests
from admission.scheduling.capacity import capacity_requests
from admission.scheduling.capacity.capacity_requests import CapacityRequest
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKeeper:
    """Makes and deletes ProvisioningRequests, and says what they keep waiting."""

    requests: CapacityRequests
    mirror: LedgerMirror
    writer: BulkWriter
    state: RequestState

    async def ask(self, inputs: CycleInputs, groups: Iterable[Group]) -> None:
        """Make the requests that are missing; failed ones are tried again. groups: with a place, all gates closed."""
        missing: list[CapacityRequest] = []
        for group in groups:
            key = self._key(inputs, group)
            if key is None or key in inputs.snapshot.provisioning_requests or key in self.state.made:
                continue
            provisioning = inputs.snapshot.queues[group.queue].provisioning
            request = capacity_requests.build(group, key, provisioning, inputs.snapshot.shapes)
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
        needed = {key for one in placements if (key := capacity_requests.key_of(one)) is not None}
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

    def answer(self, inputs: CycleInputs, group: Group, *, is_open: bool) -> Hold | FixError | None:
        """Return why a gang waits for its request, or has to ask again; None if its gates may open."""
        key = self._key(inputs, group)
        if key is None:
            return None
        request = inputs.snapshot.provisioning_requests.get(key)
        if request is None and is_open:
            return None  # somebody has deleted it after its capacity was there
        if request is None:
            failure = capacity_requests.unserved(inputs.snapshot)
        else:
            failure = capacity_requests.failure(request, is_open=is_open, runs=_runs(group))
        if failure:
            return FixError(failure)
        return capacity_requests.hold(group, key, request, self.state.trouble(key))

    def annotations(self, inputs: CycleInputs, groups: Sequence[Group]) -> Mapping[Uid, Mapping[str, str]]:
        """Return the annotations of the pods that consume requests, by pod: those that are let in towards a shape."""
        found: dict[Uid, Mapping[str, str]] = {}
        for group in groups:
            key = self._key(inputs, group)
            request = inputs.snapshot.provisioning_requests.get(key) if key is not None else None
            if request is not None and group.placement is not None:
                seats = group.placement.seats.items()
                consuming = (uid for uid, seat in seats if names.shape_of(seat.node) is not None)
                found.update(dict.fromkeys(consuming, capacity_requests.annotations(request)))
        return found

    def _key(self, inputs: CycleInputs, group: Group) -> str | None:
        """Return the key of the request that a gang has to have; None if it needs none."""
        if group.placement is None or not capacity_requests.asks_by_request(inputs.snapshot.queues.get(group.queue)):
            return None
        return capacity_requests.key_in_use(group.placement, inputs.snapshot)


def revoked(inputs: CycleInputs) -> Mapping[GangUid, str]:
    """Return why gangs have to be taken back that were let in: by what their requests say now."""
    seen = inputs.snapshot.provisioning_requests
    ending = {Answer.FAILED, Answer.CAPACITY_REVOKED}
    if not any(request.is_ours and ending & request.answers.keys() for request in seen.values()):
        return {}
    found: dict[GangUid, str] = {}
    for group in inputs.groups:
        placement = group.placement
        key = capacity_requests.key_in_use(placement, inputs.snapshot) if placement is not None else None
        request = seen.get(key) if key is not None else None
        # A gang all of whose gates are closed is requeued where they would be opened, and keeps its pods.
        if placement is None or request is None or not any(_is_open(pod, placement) for pod in group.pods):
            continue
        why = capacity_requests.failure(request, is_open=True, runs=_runs(group))
        if why:
            found[group.uid] = why
    return found


def _is_open(pod: Pod, placement: Placement) -> bool:
    return pod.meta.uid in placement.seats and not pod.gated


def _runs(group: Group) -> bool:
    return any(pod.phase == "Running" for pod in group.pods)
