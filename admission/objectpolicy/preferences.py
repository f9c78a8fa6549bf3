"""Checks of the kinds of devices that a Queue prefers. CEL that cannot be used is refused."""

from collections.abc import Iterator

from admission.api.kubernetes import devices
from admission.api.muster.queues import PlacementMode, Queue
from admission.api.snapshot import Snapshot
from admission.device_cel import limits
from admission.device_cel.lint import LintRule
from admission.errors import Problem
from admission.objectpolicy import findings
from admission.objectpolicy.findings import ObjectFinding

FIELD = "spec.preferences"


def check_write(queue: Queue, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield the findings about spec.preferences as it will be stored."""
    if queue.preferences is None:
        return
    if queue.placement is PlacementMode.COUNT:
        message = "does not count with placement: Count, where kube-scheduler takes any devices; set another placement"
        yield ObjectFinding(field=FIELD, message=message)
    seen: dict[tuple[frozenset[str], str | None], str] = {}
    for at, kind in enumerate(queue.preferences.kinds):
        field = f"{FIELD}.kinds[{at}]"
        yield from _selector(f"{field}.selector", kind.selector)
        for name in kind.classes:
            if snapshot.classes and name not in snapshot.classes:
                absent = devices.absent_class(name, snapshot.classes)
                yield ObjectFinding(field=f"{field}.deviceClasses", message=f"names class {name}, {absent}")
        same = seen.setdefault((frozenset(kind.classes), kind.selector), kind.name)
        if same != kind.name:
            yield ObjectFinding(field=field, message=f"has the same devices as kind {same}, so that it changes nothing")


def _selector(field: str, text: str | None) -> Iterator[ObjectFinding]:
    if text is None:
        return
    refused = limits.check(text)
    if refused is not None:
        yield from findings.refusals([Problem(field, f"is no selector: {refused}; {_EXAMPLE}")])
        return
    # The class has selected the devices already, so a look-up without a guard is usual here.
    for lint_warning in findings.lint_of(text):
        if lint_warning.rule is not LintRule.UNGUARDED_LOOKUP:
            yield findings.from_lint(field, text, lint_warning)


_EXAMPLE = "write one as in device.attributes['gpu.example.com'].model == 'A100'"


def expressions(queue: Queue) -> Iterator[str]:
    """Yield the CEL of the kinds, as often as it is compiled."""
    for kind in queue.preferences.kinds if queue.preferences is not None else ():
        if kind.selector is not None:
            yield from (kind.selector, kind.selector)
