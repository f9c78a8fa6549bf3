"""`muster ledger reconcile`: compares the ledger with the cluster."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from admission.accounting.books import Book
from admission.api.snapshot import Snapshot
from admission.cli import apps, cluster_options, terminal
from admission.cli.cluster_options import ContextOption, KubeconfigOption
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import options
from admission.cli.ledger.options import ClusterOption, DatabaseOption
from admission.cli.terminal import Format
from admission.cycle import reconcile as cycle_reconcile
from admission.cycle.reconcile import Outcome
from admission.errors import ClusterUnavailableError, FixError
from admission.kube.cache import reflector, watched_resources
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.client.credentials import ClusterSelection
from admission.ledger.sql_ledger import SqlLedger
from admission.lifecycle.reconciliation import Author, Difference

T = TypeVar("T")

DIFFERS = 3

SYNC_SECONDS = 60.0

WATCHED = (
    watched_resources.PODS,
    watched_resources.CLAIMS,
    watched_resources.CLASSES,
    watched_resources.SLICES,
    watched_resources.JOBS,
    *watched_resources.PARENTS,
    watched_resources.GANGS,
    watched_resources.QUEUES,
    watched_resources.METERS,
)
"""The kinds that affect the ledger."""

EPILOG = apps.epilog(
    (
        "muster ledger reconcile",
        "muster ledger reconcile --format json | jq '.differences[] | {what, subject, books, cluster}'",
        "muster ledger reconcile --fix --reason 'nodes were lost, see ticket 4711'",
    ),
    "Looks twice, and tells what differs both times: what a running controller is about to post is none of it. It may "
    "be run at any time; the controller goes on, and takes over what was posted.",
    "Exit codes: 0 nothing differs, or all of it was mended; 3 something differs; 1 the cluster or the database does "
    "not answer, or the books are damaged; 2 the installation is wrong.",
)


@dataclass(frozen=True, slots=True)
class _ObservedCluster:
    """The port Cluster, on a running watch."""

    connection: Connection
    store: Store

    async def now(self) -> Snapshot:
        await reflector.caught_up(self.connection, self.store, WATCHED)
        return self.store.snapshot()


def reconcile(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Post what makes the books say what the cluster shows.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for those who read the books; --fix needs it.")] = "",
    grace: Annotated[float, typer.Option("--grace", min=0.0, help="Seconds between the two looks.")] = 10.0,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Compare the ledger with the cluster's claims, pods and queues; with --fix, post what mends the differences."""
    if fix and not reason.strip():
        raise FixError("--fix: say with --reason why the books are corrected; it stands in every entry")
    settings = options.settings(config, database, cluster)

    async def compared(ledger: SqlLedger, observed_cluster: _ObservedCluster) -> Outcome:
        found = await cycle_reconcile.compare(ledger, observed_cluster, lambda: asyncio.sleep(grace))
        fixable = [one for one in found if one.fixable]
        if not fix or not fixable:
            return Outcome(differences=found, left=found)
        author = _author(await observed_cluster.connection.who_am_i(), reason.strip())
        outcome = await cycle_reconcile.repair(ledger, observed_cluster, fixable, author)
        return Outcome(
            differences=found,
            posted=outcome.posted,
            left=(*outcome.left, *(one for one in found if not one.fixable)),
        )

    async def opened(observed_cluster: _ObservedCluster) -> Outcome:
        async with SqlLedger.open(settings.url, settings.cluster) as ledger:
            return await compared(ledger, observed_cluster)

    outcome = asyncio.run(_with_watch(opened, ClusterSelection(kubeconfig=kubeconfig, context=context)))
    if output is Format.JSON:
        terminal.as_json(_json(settings.cluster, outcome))
    else:
        _show(settings.cluster, outcome, fix=fix)
    raise typer.Exit(DIFFERS if outcome.left else 0)


async def _with_watch(run: Callable[[_ObservedCluster], Awaitable[T]], place: ClusterSelection) -> T:
    """Watch the cluster while the question runs."""
    store = Store(WATCHED)
    async with Connection(place, retry_policy=cluster_options.RETRY_POLICY, warns=False) as connection:
        await connection.version()  # so that an unreachable API server is reported at once
        watch = asyncio.create_task(reflector.watch(connection, store), name="watch the cluster")
        try:
            await _wait_synced(connection, store)
            return await run(_ObservedCluster(connection, store))
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


async def _wait_synced(connection: Connection, store: Store) -> None:
    try:
        await store.wait_synced(SYNC_SECONDS)
    except ClusterUnavailableError as error:
        raise ClusterUnavailableError(f"{connection.server}: {error}") from error


def _author(user: str, reason: str) -> Callable[[Book], Author]:
    """Return the author of corrections: the user in the cluster and on this machine. Ledger times never go back."""
    actor = f"{user} by {getpass.getuser()}@{socket.gethostname()}"

    def author(book: Book) -> Author:
        now = datetime.now(UTC)
        return Author(at=max(now, book.at or now), actor=actor, reason=reason)

    return author


def _show(cluster: str, outcome: Outcome, *, fix: bool) -> None:
    headings = ("what", "object", "gang", "the books say", "the cluster says", "done" if fix else "--fix would")
    rows = [_row(one, outcome.left, fix=fix) for one in outcome.differences]
    terminal.table("Differences", headings, rows, empty=f"the books of {cluster} say what the cluster shows")
    if outcome.posted:
        terminal.say(f"posted {len(outcome.posted)} entries: transactions {_numbers(outcome)}")


def _row(difference: Difference, remaining: Iterable[Difference], *, fix: bool) -> tuple[object, ...]:
    done = "not yet" if fix and difference.fixable and difference in remaining else difference.fix
    return (difference.kind, difference.subject, difference.gang or "-", difference.books, difference.cluster, done)


def _numbers(outcome: Outcome) -> str:
    numbers = [place.sequence for _, place in outcome.posted]
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _json(cluster: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "differences": [
            {
                "what": one.kind,
                "subject": one.subject,
                "uid": one.uid,
                "queue": one.queue,
                "gang": one.gang,
                "meter": one.meter or None,
                "books": one.books,
                "cluster": one.cluster,
                "fix": one.fix,
                "fixed": one not in outcome.left,
            }
            for one in outcome.differences
        ],
        "entries": [
            {"sequence": place.sequence, "kind": entry.kind, "queue": entry.queue, "gang": entry.gang}
            for entry, place in outcome.posted
        ],
    }
