"""`muster ledger verify`: replays the books, and compares them with heads that are kept elsewhere."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from admission.cli import apps, config_command, terminal
from admission.cli.cluster_options import ContextOption, KubeconfigOption
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import heads as head_sources, options
from admission.cli.ledger.heads import HeadsOption, KeysOption
from admission.cli.ledger.options import ClusterOption, DatabaseOption
from admission.cli.terminal import Format
from admission.errors import FixError
from admission.heads import signed_head
from admission.heads.signed_head import Range
from admission.ledger.audit.kept_heads import Evidence, Proof
from admission.ledger.audit.verify import Finding, Verification
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Settings

BROKEN = 3

EPILOG = apps.epilog(
    (
        "muster ledger verify",
        "muster ledger verify --heads cluster",
        "muster ledger verify --heads heads.json --expect 1347:cc73d7a6697c…",
        "muster ledger verify --heads /audit/heads.jsonl --keys keys.json --accept 1290-1301",
        "muster ledger verify --database sqlite:///copy-of-the-ledger.db --format json",
        "muster ledger verify --archive /var/lib/muster/archive",
    ),
    "Without heads from elsewhere it proves that the rows belong together, not that they are those that were written: "
    "whoever can write to the database can make others that do. With --heads, every head must be passed through, and "
    "every epoch be one that a leader has had.",
    "Where periods were closed, it begins at what the last of them carried forward, which the chain vouches for. With "
    "--archive it replays the archives too, and names the one that was changed or is missing.",
    "Exit codes: 0 the books are what was written, 3 they are not, 1 the database or the cluster does not answer, 2 "
    "there is no ledger, or an option is wrong.",
)

_EXPECTED = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
_PLACES = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def verify(
    *,
    heads: HeadsOption = None,
    keys: KeysOption = None,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="N:DIGEST", help="A digest that transaction N must have; repeatable."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="N[-M]",
            help="Transactions that others than the leader wrote and that are known to be right; repeatable.",
        ),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Folder with the archives of closed periods, to replay them too.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", "-o", help="A sentence, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    config: ConfigOption = None,
) -> None:
    """Replay the books from the first row and compare hashes, balances, everything open, and heads kept elsewhere."""
    settings = config_command.chosen(config, {"--database": database, "--cluster": cluster}).settings
    source = head_sources.Source(Evidence().heads)
    if heads is not None:
        source = head_sources.read(heads, keys, settings, kubeconfig=kubeconfig, context=context)
        _check(heads, source, settings)
    evidence = Evidence(
        heads=source.kept,
        expected=tuple(map(_expected, expect or ())),
        accepted=tuple(map(_accepted, accept or ())),
        epoch=source.epoch,
    )

    async def question(ledger: SqlLedger) -> Proof:
        return await ledger.prove(evidence, archive=archive)

    found = options.query(settings.ledger, question)
    if output is Format.JSON:
        terminal.as_json(_json(found, evidence))
    elif found.ok:
        terminal.say(_right(found, evidence))
    else:
        _say_wrong(found)
    raise typer.Exit(0 if found.ok else BROKEN)


def _check(heads: str, source: head_sources.Source, settings: Settings) -> None:
    """Raise FixError if heads prove nothing of this cluster."""
    cluster = settings.ledger.cluster
    if not any(signed.head.cluster == cluster for signed in source.kept.heads):
        others = sorted({signed.head.cluster for signed in source.kept.heads})
        raise FixError(
            f"--heads: {heads} has no head of cluster {cluster!r}; it has {options.listed(others) or 'none at all'}"
            " (--cluster names the cluster)"
        )
    if not source.kept.keys:
        raise head_sources.without_keys(source.kept)


def _expected(text: str) -> tuple[int, str]:
    found = _EXPECTED.fullmatch(text)
    if found is None:
        raise FixError(f"--expect: {text!r} is no transaction and digest such as 1347:cc73d7… (64 digits)")
    return int(found[1]), found[2]


def _accepted(text: str) -> Range:
    found = _PLACES.fullmatch(text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise FixError(f"--accept: {text!r} is no transaction such as 1290, or range such as 1290-1301")
    return int(found[1]), int(found[2] or found[1])


def _right(found: Proof, evidence: Evidence) -> str:
    verification = found.verification
    text = (
        f"the books of cluster {verification.cluster} are right: {_transactions(verification)}, digest"
        f" {verification.digest}"
    )
    if not evidence.heads.heads and not evidence.expected:
        return text
    text += f"; the chain passes through {_counted(found.compared, 'head')} that {_are(found.compared)} kept elsewhere"
    if found.newest is not None:
        text += f", the newest of {signed_head.instant(found.newest.at)}"
    if found.archived:
        text += (
            f"; {_counted(found.archived, 'head')} {_are(found.archived)} of closed periods, and compared with"
            " --archive alone"
        )
    if found.after:
        text += f"; {_counted(found.after, 'transaction')} after the newest {_are(found.after)} not proven yet"
    return text


def _say_wrong(found: Proof) -> None:
    verification = found.verification
    for finding in found.findings:
        begins = f"the books of cluster {verification.cluster} are wrong"
        where = f" from transaction {finding.sequence} on" if finding is verification.finding else ""
        ends = f"; {_transactions(verification)} before it are right" if finding is verification.finding else ""
        terminal.error(f"{begins}{where} ({finding.what}): {finding.detail}{ends}")


def _json(found: Proof, evidence: Evidence) -> dict[str, Any]:
    verification = found.verification
    fields: dict[str, Any] = {
        "cluster": verification.cluster,
        "ok": found.ok,
        "transactions": verification.transactions,
        "closed": verification.closed,
        "digest": verification.digest,
        "finding": _finding(found.findings[0]) if found.findings else None,
    }
    if evidence.heads.heads or evidence.expected:
        newest = found.newest
        fields["heads"] = {
            "compared": found.compared,
            "archived": found.archived,
            "after": found.after,
            "newest": newest and {"sequence": newest.sequence, "epoch": newest.epoch, "at": options.instant(newest.at)},
            "findings": [_finding(finding) for finding in found.findings],
        }
    return fields


def _finding(finding: Finding) -> dict[str, Any]:
    return {"sequence": finding.sequence, "what": finding.what, "detail": finding.detail}


def _transactions(found: Verification) -> str:
    counted = _counted(found.transactions, "transaction")
    return f"{counted}, {found.closed} of them archived" if found.closed else counted


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
