"""`muster doctor`: checks an installation from end to end, and reports each finding with its remedy."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from admission.cli import apps, config_command, manifest_reader, terminal
from admission.cli.cluster_options import RETRY_POLICY, Cluster, ContextOption, KubeconfigOption
from admission.cli.config_command import ConfigOption, SetOption
from admission.cli.doctor import checks, findings, scheduler_config
from admission.cli.doctor.checks import CheckInputs
from admission.cli.doctor.findings import Finding, Verdict
from admission.cli.manifest_reader import BadInputError
from admission.cli.terminal import Format
from admission.errors import ForbiddenError, MalformedObjectError, MusterError, RetryError
from admission.kube.client.connection import Connection
from admission.kube.client.credentials import ClusterSelection
from admission.ledger.db import database_url, engines, migrations
from admission.settings import Settings
from admission.settings.schema import fields

app = apps.single()

CHECKS_FAILED = 3

TIME_LIMIT = timedelta(minutes=2)
"""The time limit of all checks together."""

EPILOG = apps.epilog(
    (
        "muster doctor",
        "kubectl -n muster-system exec deployment/muster-controller -- muster doctor",
        "muster doctor --format json | jq '.findings[] | select(.verdict == \"failed\")'",
    ),
    "Run it where the controller runs, so that it has the same settings and reaches the ledger. It changes nothing: "
    "what it writes are dry runs, and an entry for the ledger that is rolled back. Exit codes: 0 nothing has failed, 3 "
    "something has, 2 the settings are wrong.",
)


@app.command(epilog=EPILOG)
def doctor(
    *,
    account: Annotated[
        str,
        typer.Option(
            help="Muster's user; by default the service account of each role in its namespace.", show_default=False
        ),
    ] = "",
    scheduler_config_file: Annotated[
        str | None,
        typer.Option(
            "--scheduler-config",
            metavar="FILE",
            help="kube-scheduler's --config, or - for standard input: tell whether plans hold by it.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    config: ConfigOption = None,
    changes: SetOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Check the installation: Kubernetes, rights, webhook, certificates, leader, clocks, devices, queues, ledger."""
    settings = config_command.chosen(config, {}, changes).settings
    place = ClusterSelection(kubeconfig=kubeconfig or _file(settings.kubeconfig), context=context)
    compared = _compare_scheduler(scheduler_config_file, settings) if scheduler_config_file else []
    found = [*asyncio.run(_run_checks(place, settings, account)), *compared]
    if output is Format.JSON:
        entries = [
            {"check": one.check, "verdict": str(one.verdict), "message": one.message, "mend": one.fix} for one in found
        ]
        terminal.as_json({"findings": entries})
    else:
        rows = [(one.check, one.verdict, one.message, one.fix) for one in found]
        terminal.table("Findings", ("check", "verdict", "what was seen", "mend"), rows)
    raise typer.Exit(CHECKS_FAILED if any(one.verdict is Verdict.FAILED for one in found) else 0)


def _compare_scheduler(path: str, settings: Settings) -> list[Finding]:
    """Return what the configurations of kube-scheduler in a file change. Raises BadInputError."""
    kind, found = scheduler_config.KIND, list[Finding]()
    manifests = [one for one in manifest_reader.read([path]) if one.body.get("kind") == kind]
    if not manifests:
        raise BadInputError([f"{path}: has no {kind}; name the file that kube-scheduler gets as --config"])
    for manifest in manifests:
        version = manifest.body["apiVersion"]
        if version not in scheduler_config.VERSIONS:
            read = " or ".join(scheduler_config.VERSIONS)
            raise BadInputError([f"{manifest.place('apiVersion')}: {kind}: {version} is not read here; {read} is"])
        try:
            found += scheduler_config.judge(manifest.body, settings.controller.schedulers)
        except MalformedObjectError as error:
            raise BadInputError([manifest.problem(problem) for problem in error.problems]) from error
    return found


def _file(name: str | None) -> Path | None:
    return Path(name) if name else None


async def _run_checks(place: ClusterSelection, settings: Settings, account: str) -> list[Finding]:
    found = [findings.passed("settings", "they can be read; `muster config show` tells them")]
    async with asyncio.timeout(TIME_LIMIT.total_seconds()):
        found += await _cluster(place, settings, account)
        found += await _ledger(settings)
    return found


async def _cluster(place: ClusterSelection, settings: Settings, account: str) -> list[Finding]:
    """Run every check of the cluster; if it does not answer, only the first one reports that."""
    found: list[Finding] = []
    try:
        async with Connection(place, retry_policy=RETRY_POLICY, warns=False) as connection:
            inputs = CheckInputs(cluster=Cluster(connection), settings=settings, account=account)
            for name, check in checks.CHECKS.items():
                if name in checks.READING_OWN_KINDS and _fails("apis", found):
                    found.append(findings.skipped(name, "what it reads is not served, as apis says"))
                    continue
                try:
                    found += await check(inputs)
                except ForbiddenError as error:
                    found.append(
                        findings.skipped(name, f"whoever asks may not look: {error}", findings.ASK_ADMINISTRATOR)
                    )
                except RetryError as error:
                    if not found:
                        raise
                    found.append(findings.failed(name, str(error), "see that the API server answers, and ask again"))
                except MusterError as error:
                    found.append(findings.failed(name, str(error), "mend what is named"))
    except MusterError as error:
        found.append(
            findings.failed("cluster", str(error), "see that --kubeconfig and --context name a cluster that answers")
        )
    return found


def _fails(name: str, found: Iterable[Finding]) -> bool:
    return any(one.check == name and one.verdict is Verdict.FAILED for one in found)


async def _ledger(settings: Settings) -> list[Finding]:
    """Check the database: that it answers, has the tables of this Muster, and accepts a write."""
    if "controller" not in settings.roles:
        return [findings.skipped("ledger", "this role does not use it; ask where the controller runs")]
    url = settings.ledger.url
    try:
        database = database_url.redacted(database_url.parsed(url))
        revision = await migrations.current_revision(url)
    except RetryError as error:
        return [findings.failed("ledger", str(error), "see that the database runs and lets this machine in (5432)")]
    except MusterError as error:
        return [findings.failed("ledger", str(error), f"mend {fields()['ledger.url'].variable}")]
    found = _revision(database, revision, await migrations.known_revisions())
    return [found if found.verdict is not Verdict.OK else await _check_write(url, found)]


async def _check_write(url: str, passed: Finding) -> Finding:
    """Return `passed` if a write succeeds too: a read-only or full database still answers."""
    try:
        await engines.write(url)
    except RetryError as error:
        fix = "see that it takes writes: that it is no standby, has room on its disk, and is locked by nobody"
        return findings.failed("ledger", str(error), fix)
    except MusterError as error:
        return findings.failed("ledger", str(error), "give its user the right to write all tables, or name another one")
    return passed


def _revision(database: str, revision: str | None, known: Sequence[str]) -> Finding:
    if revision is None:
        fix = "ask where the controller runs; or `muster ledger migrate`, if this is a new one"
        return findings.skipped("ledger", f"there are no books in {database}", fix)
    if revision not in known:
        fix = "run the Muster that upgraded it, or a later one"
        return findings.failed("ledger", f"{database} is at revision {revision}, which this Muster does not know", fix)
    if revision != known[-1]:
        fix = "`muster ledger migrate`, or start a controller with ledger.migrate"
        return findings.failed("ledger", f"{database} is at revision {revision}, and not at {known[-1]}", fix)
    return findings.passed("ledger", f"{database} answers, at revision {revision}, and takes a write")
