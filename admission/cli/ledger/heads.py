"""`muster ledger heads`: prints the signed heads that are kept outside of the database; and how they are read."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from admission.cli import apps, cluster_options, config_command, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import options
from admission.cli.terminal import Format
from admission.errors import FixError
from admission.heads import head_document, key_history
from admission.heads.head_document import KeptHeads
from admission.kube import leader_election
from admission.kube.config_map_store import ConfigMapStore
from admission.settings import Settings

CLUSTER = "cluster"
"""The source that is the cluster's ConfigMap."""

MOST_BYTES = 512 * 1024 * 1024

EPILOG = apps.epilog(
    (
        "muster ledger heads",
        "muster ledger heads --format json > heads.json",
        "muster ledger heads --heads /var/log/muster/heads.jsonl --keys keys.json",
    ),
    "A leader signs the end of the books when its term begins, at each mark and closing, and while they grow. JSON has "
    "the public keys, too, and is what --heads and --keys of `muster ledger verify` read.",
    "Exit codes: 0 done, 1 the cluster does not answer, 2 there are no heads, or no right to read them.",
)

HeadsOption = Annotated[
    str | None,
    typer.Option(
        "--heads",
        help="Where the heads are kept: `cluster` (the ConfigMap), a file of lines or JSON, or `-` for standard input.",
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", help="File with the public keys of heads; by default those that are kept beside them."),
]


class Source(NamedTuple):
    """Heads that were read. epoch: of the latest leader by its lease, where the cluster was asked."""

    kept: KeptHeads
    epoch: int | None = None


def heads(
    *,
    source: HeadsOption = CLUSTER,
    keys: KeysOption = None,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the signed heads of the books that are kept outside of their database, the newest last."""
    settings = config_command.chosen(config, {}).settings
    kept = read(source or CLUSTER, keys, settings, kubeconfig=kubeconfig, context=context).kept
    if not kept.heads:
        raise FixError(f"--heads: there are no heads in {source}; a controller signs the first when its term begins")
    if output is Format.JSON:
        terminal.as_json(head_document.to_json(kept))
        return
    columns = ("signed", "cluster", "epoch", "transaction", "cause", "foreign", "digest", "signature")
    terminal.table("Signed heads", columns, _rows(kept))


def _rows(kept: KeptHeads) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for signed in kept.heads:
        head = signed.head
        foreign = ",".join(f"{first}-{last}" if first < last else str(first) for first, last in head.foreign)
        problem = key_history.problem(signed, kept.keys) if kept.keys else "not checked, without keys"
        rows.append(
            (
                options.instant(head.at.replace(microsecond=0)),
                head.cluster,
                str(head.epoch),
                str(head.sequence),
                str(head.cause),
                foreign or "-",
                head.digest,
                problem or f"right, key {signed.key}",
            )
        )
    return rows


def read(source: str, keys: Path | None, settings: Settings, *, kubeconfig: Path | None, context: str | None) -> Source:
    """Return the heads of --heads, with the keys of --keys if given. Raises FixError if they cannot be read."""
    if source == CLUSTER:

        async def fetch(cluster: Cluster) -> Source:
            namespace, name = settings.lease.namespace, settings.heads.config_map
            stored = await ConfigMapStore(cluster.connection, namespace=namespace, name=name).read()
            if stored is None:
                raise FixError(
                    f"--heads: there is no ConfigMap {namespace}/{name} at {cluster.connection.server}: no leader has"
                    " signed heads there (setting heads.enabled)"
                )
            epoch = await leader_election.latest_epoch(cluster.connection, namespace, settings.lease.name)
            return Source(_parsed(f"ConfigMap {namespace}/{name}", stored[0]), epoch)

        found = cluster_options.query(fetch, kubeconfig=kubeconfig, context=context)
    else:
        found = Source(_parsed(source, _text("--heads", source)))
    if keys is None:
        return found
    try:
        public = head_document.keys_from_text(_text("--keys", str(keys)))
    except FixError as error:
        raise FixError(f"--keys: {keys}: {error}") from error
    return found._replace(kept=replace(found.kept, keys=public))


def _parsed(name: str, content: Any) -> KeptHeads:
    try:
        return head_document.from_text(content) if isinstance(content, str) else head_document.from_entries(content)
    except FixError as error:
        raise FixError(f"--heads: {name}: {error}") from error


def _text(option: str, source: str) -> str:
    try:
        if source == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise FixError(f"{option}: {source} has more than {MOST_BYTES} bytes; pass the newest heads")
        return content.decode()
    except OSError as error:
        raise FixError(f"{option}: {source}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FixError(f"{option}: {source} is no text: {error}") from error


def without_keys(kept: KeptHeads) -> FixError:
    """Return the error for heads whose signatures cannot be checked."""
    named = ", ".join(sorted({signed.key for signed in kept.heads})[:5])
    return FixError(
        f"--keys: the heads are signed by {named}, and no public keys stand beside them; pass the keys that `muster"
        " ledger heads --format json` printed"
    )
