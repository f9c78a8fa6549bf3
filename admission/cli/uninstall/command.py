"""`muster uninstall`: says what still runs, and removes what Muster has put into a cluster."""

from typing import Annotated

import msgspec
import typer

from admission.cli import apps, cluster_options, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.uninstall import survey
from admission.cli.uninstall.removal import Removal
from admission.cli.uninstall.survey import Survey
from admission.settings import Settings

app = apps.single()

NOT_REMOVED = 3

EPILOG = apps.epilog(
    ("muster uninstall", "muster uninstall --yes", "muster uninstall --yes --purge"),
    "Order: controllers end while webhooks still answer, the webhook configurations and the policy on changes of pods "
    "go, then fences, ProvisioningRequests and what autoscalers are told on nodes, the finalizers of queues, and the "
    "Secret and Lease of Muster's own. Pods, claims and the ledger's database are never touched. The chart runs it "
    "before `helm uninstall`.",
    "Exit codes: 0 done, 1 the cluster does not answer or controllers do not end, 2 a right is missing or a controller "
    "elsewhere leads still, 3 nothing is removed without --yes.",
)


@app.command(epilog=EPILOG)
def uninstall(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; else only what there is is said.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also the CRDs with all queues, meters, policies and gangs; signed heads.")
    ] = False,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Muster's own.")] = Settings().lease.namespace,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Take Muster out of a cluster, in an order in which it closes nothing that it no longer opens."""
    settings = Settings()
    settings = msgspec.structs.replace(settings, lease=msgspec.structs.replace(settings.lease, namespace=namespace))

    async def remove(cluster: Cluster) -> Survey:
        found = await survey.survey(cluster)
        for line in found.lines():
            terminal.say(line)
        if yes:
            await Removal(cluster.connection, settings, terminal.say).run(found, purge=purge)
        return found

    cluster_options.query(remove, kubeconfig=kubeconfig, context=context)
    if not yes:
        terminal.note("nothing is removed: say --yes for that")
        raise typer.Exit(NOT_REMOVED)
    if not purge:
        terminal.note("queues, meters, policies and gangs stay, and can be deleted now; --purge removes them too")
