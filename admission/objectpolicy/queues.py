"""Checks of a new, changed or deleted Queue.

A queue that would close a cycle, or exceed the depth of the tree, is refused. A queue whose parent or meter does not
exist yet is admitted, since manifests are applied in any order. If a stored queue is in a cycle or too deep already,
its other fields may be changed.
"""

from collections.abc import Iterator, Sequence

from admission.api import suggestions
from admission.api.kubernetes.meta import Meta
from admission.api.muster.queues import Queue, Quota
from admission.api.snapshot import Snapshot
from admission.api.values import quantities
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import DenyReason
from admission.objectpolicy import findings, in_use, preferences
from admission.objectpolicy.findings import ObjectFinding
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Inactive, Tree


def check_write(queue: Queue, snapshot: Snapshot, before: Queue | None = None) -> Iterator[ObjectFinding]:
    """Yield the findings about a queue as it will be stored. before: the stored queue, for an update."""
    others = [other for name, other in snapshot.queues.items() if name != queue.name]
    old = Tree.build(others if before is None else [*others, before])
    new = Tree.build([*others, queue])
    yield from _parent(queue, new, snapshot, moved=before is None or before.parent != queue.parent)
    yield from _too_deep(queue, old, new)
    yield from _meters(queue, snapshot)
    yield from preferences.check_write(queue, snapshot)
    yield from _limits(queue, new)
    yield from _competing_defaults(queue, snapshot)
    yield from _duplicate_aliases(queue, snapshot)
    if before is not None:
        yield from _overcommitted(queue, old, new, snapshot)
        yield from _excluded_gangs(queue, before, snapshot)


def check_delete(queue: Queue, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield the effects of a queue's deletion on gangs and other queues."""
    tree = Tree.build(snapshot.queues.values())
    descendants = _descendants(queue.name, tree)
    unfinished_gangs = in_use.unfinished({queue.name, *descendants}, snapshot.gangs.values())
    holders = [gang for gang in unfinished_gangs if in_use.is_admitted(gang)]
    waiting = [gang for gang in unfinished_gangs if not in_use.is_admitted(gang)]
    if holders:
        admitted = f"what was let in here or below gave the devices back ({in_use.describe(holders)})"
        yield _warning(".", f"the queue takes no new gangs from now on, and goes when {admitted}")
    if waiting:
        waiting_text = f"what waits here or below ({in_use.describe(waiting)}) will not start"
        yield _warning(".", f"{waiting_text}; delete the pods, and create them in another queue")
    if descendants:
        message = (
            f"{findings.counted(len(descendants), 'queue')} below ({findings.listed(descendants)}) become inactive"
        )
        yield _warning(".", f"{message}; give them another parent first")


def _warning(field: str, message: str) -> ObjectFinding:
    return ObjectFinding(field=field, message=message)


def _descendants(queue: QueueName, tree: Tree) -> list[QueueName]:
    found = list(tree.children.get(queue, ()))
    # The list grows during the loop: breadth first.
    for name in found:
        found.extend(tree.children.get(name, ()))
    return sorted(found)


def _parent(queue: Queue, tree: Tree, snapshot: Snapshot, *, moved: bool) -> Iterator[ObjectFinding]:
    problem = tree.problems.get(queue.name)
    match problem.reason if problem else None:
        case Inactive.CYCLE | Inactive.TOO_DEEP if problem:
            denied = DenyReason.MALFORMED_REQUEST if moved else None
            yield ObjectFinding(field="spec.parent", message=problem.message, denied=denied)
        case Inactive.MISSING_PARENT | Inactive.ANCESTOR if problem:
            unread = snapshot.malformed.get(("Queue", queue.parent or ""))
            message = f"queue {queue.parent} exists but cannot be read: {unread}" if unread else problem.message
            yield _warning("spec.parent", f"{message}; until then the queue takes nothing")
        case _:
            pass


def _too_deep(queue: Queue, old: Tree, new: Tree) -> Iterator[ObjectFinding]:
    """Yield the queues that become too deep because a queue above them moved."""
    deep = [
        name
        for name, problem in new.problems.items()
        if problem.reason is Inactive.TOO_DEEP and name != queue.name and name not in old.problems
    ]
    if deep and queue.name not in new.problems:
        yield _warning("spec.parent", f"queues {findings.listed(deep)} become too deep, and so inactive")


def _meters(queue: Queue, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    named = [(f"spec.quotas[{at}].meter", quota.meter) for at, quota in enumerate(queue.quotas)]
    named += [(f"spec.budgets[{at}].meter", budget.meter) for at, budget in enumerate(queue.budgets)]
    for field, meter in named:
        unread = snapshot.malformed.get(("Meter", meter))
        if unread is not None:
            yield _warning(field, f"Meter {meter} cannot be read ({unread}); no gang starts before")
        elif meter not in snapshot.meters:
            existing = suggestions.listed(meter, snapshot.meters)
            there = f" (there are: {existing})" if existing else ""
            yield _warning(field, f"there is no Meter {meter}{there}; no gang starts before it is created")


def _limits(queue: Queue, tree: Tree) -> Iterator[ObjectFinding]:
    """Yield limits without an effect, which are probably mistakes."""
    for at, quota in enumerate(queue.quotas):
        field = f"spec.quotas[{at}]"
        if queue.parent is None:
            if quota.borrowing_limit is not None:
                yield _warning(f"{field}.borrowingLimit", "has no effect: without a parent there is nobody to lend")
            if quota.lending_limit is not None:
                yield _warning(f"{field}.lendingLimit", "has no effect: without a parent there is nobody to borrow")
        elif _lends_more_than_it_has(quota) and queue.namespaces is not None and queue.name not in tree.children:
            nominal = quantities.render(quota.nominal)
            yield _warning(f"{field}.lendingLimit", f"has no effect: it is more than nominal, which is {nominal}")


def _lends_more_than_it_has(quota: Quota) -> bool:
    return quota.lending_limit is not None and quota.lending_limit > quota.nominal


def _competing_defaults(queue: Queue, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield other queues that are the default of the same namespaces."""
    defaults = [other for other in snapshot.queues.values() if queue.default and other.default]
    for other, where in _sharing_namespaces(queue, defaults, snapshot):
        message = f"queue {other.name} is the default of {where} as well; pods there that name no queue enter none"
        yield _warning("spec.default", message)


def _duplicate_aliases(queue: Queue, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield other queues with the same alias in the same namespaces."""
    with_same = [other for other in snapshot.queues.values() if not queue.aliases.isdisjoint(other.aliases)]
    for other, where in _sharing_namespaces(queue, with_same, snapshot):
        same = findings.listed(sorted(queue.aliases & other.aliases))
        message = f"queue {other.name} is called {same} in {where} as well; pods there that name it are refused"
        yield _warning("spec.aliases", message)


def _sharing_namespaces(queue: Queue, among: Sequence[Queue], snapshot: Snapshot) -> Iterator[tuple[Queue, str]]:
    """Yield the other queues of some that select namespaces of a queue, by name, each with a text that names these."""
    if queue.namespaces is None or not among:
        return
    labels = {
        name: namespace.labels
        for name, namespace in snapshot.namespaces.items()
        if queue.namespaces.matches(namespace.labels)
    }
    for other in sorted(among, key=lambda other: other.name):
        if other.name == queue.name or other.namespaces is None or other.meta.deleted is not None:
            continue
        shared = sorted(name for name, namespace_labels in labels.items() if other.namespaces.matches(namespace_labels))
        if shared:
            yield other, f"{'namespace' if len(shared) == 1 else 'namespaces'} {findings.listed(shared)}"


def _overcommitted(queue: Queue, old: Tree, new: Tree, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield queues that use more than they may have after the change, and the queue itself if it will be borrowing."""
    uses = in_use.amounts(snapshot.gangs.values())
    before, after = QueueUsage(old, uses), QueueUsage(new, uses)
    for meter in sorted({meter for amounts in uses.values() for meter in amounts}):
        exceeding = [
            name
            for name in new.order
            if after.usage(name, meter) > after.potential(name, meter) and not _exceeds_potential(before, name, meter)
        ]
        if exceeding:
            notes = [
                f"{name} uses {quantities.render(after.usage(name, meter))}"
                f" of at most {quantities.render(after.potential(name, meter))}"
                for name in exceeding
            ]
            message = f"{meter}: more is in use than can be had from now on: queue {findings.listed(notes)}"
            yield _warning("spec.quotas", f"{message}; nothing is evicted, and nothing more starts until it is less")
            continue
        used, nominal = after.usage(queue.name, meter), after.quota(queue.name, meter)
        if queue.name in new.placed and nominal < before.quota(queue.name, meter) and used > nominal:
            message = (
                f"{in_use.format_amount(used, meter)} are in use; all above {quantities.render(nominal)} is borrowed"
                " from now on"
            )
            yield _warning("spec.quotas", message)


def _exceeds_potential(queue_state: QueueUsage, queue: QueueName, meter: MeterName) -> bool:
    return queue_state.usage(queue, meter) > queue_state.potential(queue, meter)


def _excluded_gangs(queue: Queue, before: Queue, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield the gangs whose namespaces could enter the queue before, but not any more."""
    if before.namespaces is None or before.namespaces == queue.namespaces:
        return
    selector = queue.namespaces
    excluded = [
        gang
        for gang in in_use.unfinished({queue.name}, snapshot.gangs.values())
        if selector is None or not selector.matches(_labels(gang.meta, snapshot))
    ]
    if excluded:
        keep = "keeps what it has until it ends, and starts" if len(excluded) == 1 else "keep what they have, and start"
        message = f"{in_use.describe(excluded)} {keep} no pods, since the namespace may not enter any more"
        yield _warning("spec.namespaceSelector", message)


def _labels(meta: Meta, snapshot: Snapshot) -> dict[str, str]:
    known = snapshot.namespaces.get(meta.namespace)
    return dict(known.labels) if known is not None else {}
