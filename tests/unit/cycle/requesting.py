"""A queue that asks by ProvisioningRequests, and an API server that keeps these and says what an autoscaler answers."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from admission.api.capacity.provisioning_requests import Answer, ProvisioningRequest
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.scheduling.capacity.capacity_requests import CapacityRequest
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.autoscaled import Asking
from tests.unit.cycle.fences import KilledError

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
REQUEST = {"mode": "ProvisioningRequest", "class": CLASS, "timeout": "15m", "parameters": {"ValidUntilSeconds": "600"}}


def asks(gpus: int = 100, **queue: Any) -> ClusterBuilder:
    return a_cluster().queue("q", gpus=gpus, provisioning=REQUEST, **queue).shape("x8", gpus=8)


MADE = {names.MANAGED_BY: names.FIELD_MANAGER}


class Requests:
    """The API server's ProvisioningRequests, as a leader's view shows them at once. lives: writes until it dies."""

    def __init__(self, play: "Requesting") -> None:
        self._play = play
        self.made: list[CapacityRequest] = []
        self.gone: list[str] = []
        self.fails: Exception | None = None
        self.lives = 10**6
        self.templates: set[str] = set()
        """The keys of requests that have a PodTemplate."""
        self.cleanups = 0
        self.refuses: Exception | None = None

    async def create(self, request: CapacityRequest) -> None:
        self._die()
        self.templates.add(request.key)
        self._die()
        if self.fails is not None:
            raise self.fails
        self.made.append(request)
        meta = Meta(name=request.name, namespace=request.namespace, labels=MADE, annotations=request.annotations)
        self.put(ProvisioningRequest(meta=meta, provisioning_class=request.provisioning_class))
        self._die()

    async def delete(self, request: ProvisioningRequest) -> None:
        self._die()
        self.gone.append(request.meta.key)
        rest = self._play.world._rest
        left = {key: one for key, one in rest.provisioning_requests.items() if key != request.meta.key}
        self._play.world._rest = replace(rest, provisioning_requests=left)
        self._die()
        self.templates.discard(request.meta.key)
        self._die()

    async def delete_unused(self, kept: Collection[str]) -> Sequence[str]:
        if self.refuses is not None:
            raise self.refuses
        self.cleanups += 1
        gone = self.templates - {*kept}
        self.templates -= gone
        return [*gone]

    def put(self, request: ProvisioningRequest) -> None:
        rest = self._play.world._rest
        known = {**rest.provisioning_requests, request.meta.key: request}
        self._play.world._rest = replace(rest, provisioning_requests=known)

    def answer(self, *answers: Answer, message: str = "it says so", progress: str = "", of: str = "") -> None:
        """Have the autoscaler set conditions of the only request, or that of a name."""
        (request,) = [one for one in self.there if not of or one.meta.name == of]
        self.put(replace(request, answers={**request.answers, **dict.fromkeys(answers, message)}, progress=progress))

    @property
    def there(self) -> list[ProvisioningRequest]:
        return [*self._play.world._rest.provisioning_requests.values()]

    def _die(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise KilledError


class Requesting(Asking):
    """A leader whose queue asks by ProvisioningRequests."""

    def __init__(self, builder: ClusterBuilder, **jobs: dict[str, Any]) -> None:
        self.requests = Requests(self)
        super().__init__(builder, None, **jobs)

    def _prepare(self) -> None:
        super()._prepare()
        self.leader = replace(self.leader, ports=replace(self.leader.ports, requests=self.requests))
