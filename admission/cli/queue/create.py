"""`muster queue create`: a Queue from options, judged as by the webhook before it is sent."""

from typing import Annotated

import typer

from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, object_writes, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.object_writes import DryRun, DryRunOption, ObjectFormatOption
from admission.cli.queue import spec_options
from admission.cli.queue.spec_options import (
    BorrowOption,
    ClassOption,
    DefaultOption,
    HoldAtOption,
    IdleOption,
    LendOption,
    MaxWaitOption,
    NamespacesOption,
    ParentOption,
    QuotaOption,
    SelectorOption,
    SpecOptions,
)

EPILOG = apps.epilog(
    (
        "muster queue create research --quota gpus=16 --quota memory=640Gi",
        "muster queue create vision --parent research --quota gpus=4 --namespace vision --default",
        "muster queue create vision --namespace-selector team=vision --dry-run client -o yaml > vision.yaml",
    ),
    "Without --namespace and --namespace-selector no namespace may enter it: it is for the queues below it. "
    "The other fields of a Queue are set by `muster queue edit`.",
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it would be refused, exists already, or a right is missing.",
)


def create(
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.", show_default=False)],
    *,
    quotas: QuotaOption = None,
    borrow_limits: BorrowOption = None,
    lend_limits: LendOption = None,
    parent: ParentOption = "",
    namespaces: NamespacesOption = None,
    namespace_selector: SelectorOption = "",
    default: DefaultOption = None,
    priority_classes: ClassOption = None,
    hold_at: HoldAtOption = None,
    max_wait: MaxWaitOption = "",
    idle: IdleOption = None,
    dry_run: DryRunOption = DryRun.NONE,
    output: ObjectFormatOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Create a queue from options, or print it."""
    options = SpecOptions(
        quotas=quotas or (),
        borrow_limits=borrow_limits or (),
        lend_limits=lend_limits or (),
        parent=parent,
        namespaces=namespaces or (),
        namespace_selector=namespace_selector,
        is_default=default,
        priority_classes=priority_classes or (),
        hold_at=hold_at,
        max_wait=max_wait,
        idle=idle or (),
    )
    queue = spec_options.a_queue(name, options)

    async def write(cluster: Cluster) -> Json:
        for warning in await object_writes.check(cluster, [queue]):
            terminal.note(warning)
        return await object_writes.create(cluster, queue, dry_run)

    if dry_run is DryRun.CLIENT:
        object_writes.refuse_invalid([queue])
        made = queue
    else:
        made = cluster_options.query(write, kubeconfig=kubeconfig, context=context)
    object_writes.show([made], output, dry_run)
