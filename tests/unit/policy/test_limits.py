from typing import Any

import pytest

from admission.api import claims
from admission.api.names import QueueName
from admission.api.reading import Reader
from admission.api.reasons import DenyReason
from admission.policy.doors import KnownClaim
from admission.policy.limits import Limits
from tests.unit.webhook.cases import World, either, exactly

GPU = "gpu.example.com"


def quota(nominal: int, **limits: str) -> list[dict[str, Any]]:
    return [{"meter": "gpus", "nominal": str(nominal), **limits}]


def needs(*requests: dict[str, Any], allocated: bool = False) -> KnownClaim:
    spec = claims.decode_spec(Reader({"devices": {"requests": list(requests)}}))
    return KnownClaim(source="ResourceClaim c", spec=spec, allocated=allocated)


ALONE = World().queue("team-a", quotas=quota(8))
FAMILY = (
    World()
    .queue("root", team=None, quotas=quota(0))
    .queue("team-a", parent="root", quotas=quota(8))
    .queue("team-b", parent="root", quotas=quota(8), team="b")
)
STINGY = (
    World()
    .queue("root", team=None, quotas=quota(0))
    .queue("team-a", parent="root", quotas=quota(8, borrowingLimit="2"))
    .queue("team-b", parent="root", quotas=quota(8), team="b")
)
ORPHAN = World().queue("team-a", parent="nowhere", quotas=quota(8))

CASES: dict[str, tuple[World, list[KnownClaim], tuple[int, int] | None]] = {
    "a pod without claims fits": (ALONE, [], None),
    "what the quota just holds fits": (ALONE, [needs(exactly("gpu", GPU, 8))], None),
    "one more never fits": (ALONE, [needs(exactly("gpu", GPU, 9))], (9, 8)),
    "claims are added up": (ALONE, [needs(exactly("gpu", GPU, 5)), needs(exactly("gpu", GPU, 4))], (9, 8)),
    "a sibling may lend": (FAMILY, [needs(exactly("gpu", GPU, 16))], None),
    "but no more than it has": (FAMILY, [needs(exactly("gpu", GPU, 17))], (17, 16)),
    "a limit caps the loan": (STINGY, [needs(exactly("gpu", GPU, 11))], (11, 10)),
    "the cheapest alternative counts": (ALONE, [needs(either("gpu", ("a", GPU, 16), ("b", GPU, 8)))], None),
    "a queue without quota holds nothing": (World().queue("team-a"), [needs(exactly("gpu", GPU))], (1, 0)),
    "an allocated claim is paid for": (ALONE, [needs(exactly("gpu", GPU, 9), allocated=True)], None),
    "an inactive queue refuses nothing": (ORPHAN, [needs(exactly("gpu", GPU, 9))], None),
    "what nobody meters costs nothing": (ALONE, [needs(exactly("card", "fpga.example.com", 32))], None),
}


@pytest.mark.parametrize(("world", "asked", "refused"), CASES.values(), ids=CASES)
def test_what_never_fits(world: World, asked: list[KnownClaim], refused: tuple[int, int] | None) -> None:
    snapshot = world.build()
    limits = Limits.of(snapshot.queues.values(), snapshot.meters.values())

    denial = limits(snapshot.queues[QueueName("team-a")], asked)

    if refused is None:
        assert denial is None
    else:
        assert denial is not None
        assert denial.reason == DenyReason.NEVER_FITS
        assert (denial.details["needed"], denial.details["potential"]) == tuple(map(str, refused))
