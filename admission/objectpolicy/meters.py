"""Checks of a new, changed or deleted Meter. CEL that cannot be used is refused."""

from collections.abc import Iterator

from admission.api.muster.meters import NATIVE, Meter
from admission.api.snapshot import Snapshot
from admission.device_cel.lint import LintRule
from admission.dra.metering import device_meters
from admission.objectpolicy import findings, in_use
from admission.objectpolicy.findings import ObjectFinding
from admission.quota.tree import Tree


def check_write(meter: Meter, snapshot: Snapshot, before: Meter | None = None) -> Iterator[ObjectFinding]:
    """Yield the findings about a meter as it will be stored. before: the stored meter, for an update."""
    yield from unusable(meter)
    for at, source in enumerate(meter.sources):
        # The class has selected the devices already, so a look-up without a guard is usual here.
        for lint_warning in findings.lint_of(source.selector or "true"):
            if lint_warning.rule is not LintRule.UNGUARDED_LOOKUP:
                yield findings.from_lint(f"spec.sources[{at}].selector", source.selector or "", lint_warning)
    missing = sorted(meter.classes - set(snapshot.classes))
    if missing and snapshot.classes:
        yield ObjectFinding(field="spec.sources", message=f"no DeviceClass is called {findings.listed(missing)} yet")
    yield from _queues_without_quota(meter, snapshot, before)
    if before is not None:
        amount, holders = in_use.charged(meter.name, snapshot.gangs.values())
        if amount:
            message = (
                f"{in_use.format_amount(amount, meter.name)} stay charged as they are to {in_use.describe(holders)}"
            )
            yield ObjectFinding(
                field="spec", message=f"{message}; only what is let in from now on is counted the new way"
            )


def _queues_without_quota(meter: Meter, snapshot: Snapshot, before: Meter | None) -> Iterator[ObjectFinding]:
    """Warn of a meter that newly counts what pods of every kind request, before their queues have a quota of it."""
    known = {rate.name for rate in before.resources} if before is not None else set()
    new = [rate.name for rate in meter.resources if rate.name in NATIVE and rate.name not in known]
    tree = Tree.build(snapshot.queues.values())
    without = sorted(
        name
        for name, queue in snapshot.queues.items()
        if queue.namespaces is not None
        and tree.active(name)
        and not any(meter.name in tree.queues[above].meters for above in tree.path(name))
    )
    if new and without:
        message = (
            f"queues {findings.listed(without)} have no quota of it, which is a quota of 0: their pods that request"
            f" {findings.listed(new)} are refused until they have one, or a queue above them has"
        )
        yield ObjectFinding(field="spec.resources", message=message)


def expressions(meter: Meter) -> Iterator[str]:
    """Yield the meter's CEL, as often as it is compiled."""
    for source in meter.sources:
        if source.selector is not None:
            yield from (source.selector, source.selector)
        if source.expression is not None:
            yield source.expression


def unusable(meter: Meter) -> list[ObjectFinding]:
    """Return the problems of a meter's CEL, with which nothing can be counted."""
    return findings.refusals(device_meters.compile_meters([meter]).problems.get(meter.name, ()))


def check_delete(meter: Meter, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield the effects of a meter's deletion on gangs and queues."""
    amount, holders = in_use.charged(meter.name, snapshot.gangs.values())
    if amount:
        message = (
            f"{in_use.format_amount(amount, meter.name)} stay charged to {in_use.describe(holders)} until"
            " their claims go"
        )
        yield ObjectFinding(field=".", message=message)
    queues = sorted(
        queue.name
        for queue in snapshot.queues.values()
        if meter.name in {*(quota.meter for quota in queue.quotas), *(budget.meter for budget in queue.budgets)}
    )
    if queues:
        message = f"queues {findings.listed(queues)} name it: no gang starts there any more"
        yield ObjectFinding(field=".", message=f"{message}; take it from their quotas and budgets first")
