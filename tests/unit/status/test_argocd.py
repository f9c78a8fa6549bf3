"""What Argo CD makes of the statuses that Muster writes, by deploy/argocd, in the Lua (5.1) that Argo CD runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import lua51

from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.muster.gangs import Evicted, GangReport, Phase
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Denial, DenyReason, EvictionReason, Hold, HoldReason
from admission.kube.writers import status_encoding
from tests.builders import NOON
from tests.unit.api import crds

PREFIX = f"resource.customizations.health.{names.GROUP}_"
FILE = Path(__file__).parents[3] / "deploy" / "argocd" / "argocd-cm.yaml"
CHECKS = {key.removeprefix(PREFIX): text for key, text in yaml.safe_load(FILE.read_text())["data"].items()}


def health(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any], generation: int = 2) -> tuple[str, str]:
    """Return status and message; Argo CD gives the object as the global `obj`."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    obj = {"metadata": {"generation": generation}, "spec": dict(spec), **({"status": dict(status)} if status else {})}
    lua.globals().obj = lua.table_from(obj, recursive=True)
    found = lua.execute(CHECKS[kind])
    return found.status, found.message


def condition(kind: str, message: str, *, holds: bool, reason: str = "Because") -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=kind, status=status, reason=reason, message=message)


ACTIVE = condition("Active", "the queue admits gangs", holds=True)


def queue(*conditions: Condition, generation: int = 2, stop: str = "") -> tuple[str, str]:
    report = QueueReport(name=QueueName("q"), generation=generation, conditions=(ACTIVE, *conditions))
    spec = {"stopPolicy": stop} if stop else {}
    return health("Queue", spec, status_encoding.queue_status(report, {}, now=NOON))


def test_every_kind_has_a_health_check_and_no_other() -> None:
    assert CHECKS.keys() == crds.SCHEMAS.keys()


@pytest.mark.parametrize("kind", CHECKS)
def test_what_muster_has_not_seen_yet_is_progressing(kind: str) -> None:
    assert health(kind, {}, {})[0] == "Progressing"


def test_a_queue_is_as_healthy_as_what_it_needs_to_admit_gangs() -> None:
    spent = condition("BudgetLeft", "it is spent", holds=False)

    assert queue() == ("Healthy", "")
    assert queue(spent) == ("Healthy", "it is spent")
    assert queue(spent, condition("MetersKnown", "no Meter", holds=False)) == ("Degraded", "no Meter")
    assert queue(condition("Active", "a cycle", holds=False), stop="Hold") == ("Degraded", "a cycle")
    assert queue(condition("Active", "stopped above", holds=False, reason="Stopped")) == ("Suspended", "stopped above")
    assert queue(stop="HoldAndDrain") == ("Suspended", "stopPolicy is HoldAndDrain")
    assert queue(stop="None")[0] == "Healthy"
    assert queue(generation=1)[0] == "Progressing"


@pytest.mark.parametrize("kind", ["Meter", "ClaimPolicy", "NodeShape"])
def test_a_meter_a_policy_and_a_shape_are_healthy_when_they_are_ready(kind: str) -> None:
    def judged(generation: int, *, holds: bool) -> tuple[str, str]:
        told = (condition("Ready", "told", holds=holds),)
        report = ConditionReport(plural="", name="x", generation=generation, conditions=told)
        return health(kind, {}, status_encoding.condition_status(report, {}, now=NOON))

    assert judged(2, holds=True) == ("Healthy", "told")
    assert judged(1, holds=True)[0] == "Progressing"
    # What cannot be read has no generation.
    assert judged(0, holds=False) == ("Degraded", "told")


def gang(phase: Phase, hold: Hold | Denial | None = None, evicted: Evicted | None = None) -> tuple[str, str]:
    report = GangReport(
        uid=GangUid("g"),
        namespace="ml",
        name="g",
        queue=QueueName("q"),
        size=1,
        phase=phase,
        hold=hold,
        evicted=evicted,
    )
    return health("Gang", {}, status_encoding.gang_status(report, {}, now=NOON))


def test_a_gang_is_healthy_as_soon_as_it_runs() -> None:
    evicted = Evicted(reason=EvictionReason.PREEMPTED, message="made room", at=NOON)

    assert {phase: gang(phase)[0] for phase in Phase} == {
        phase: "Healthy" if phase in {Phase.RUNNING, Phase.FINISHED} else "Progressing" for phase in Phase
    }
    assert gang(Phase.EVICTED, evicted=evicted) == ("Progressing", "made room")


def test_a_gang_that_waits_is_progressing_and_one_that_can_never_start_is_degraded() -> None:
    refused = {"refusedOn": ["n"]}
    holds = {reason: gang(Phase.PENDING, Hold(reason, "waits", refused)) for reason in HoldReason}
    denials = {reason: gang(Phase.PENDING, Denial(reason, "never")) for reason in DenyReason}

    assert holds.pop(HoldReason.QUEUE_STOPPED) == ("Suspended", "waits")
    assert set(holds.values()) == {("Progressing", "waits")}
    assert gang(Phase.PENDING, Hold(HoldReason.NO_FEASIBLE_PLACEMENT, "no class")) == ("Degraded", "no class")
    assert set(denials.values()) == {("Degraded", "never")}
