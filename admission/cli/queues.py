"""`muster queue`: what the queues use, from the status that the controller keeps."""

from typing import Annotated, Any

import typer

from admission.api.gangs import Phase
from admission.api.meta import ConditionStatus
from admission.api.reports import QueueReport
from admission.cli import applications, clusters, rendering, statuses
from admission.cli.clusters import Cluster, ContextOption, KubeconfigOption
from admission.cli.rendering import Format, Number
from admission.cluster import kinds

app = applications.group()

EPILOG = applications.epilog(
    (
        "muster queue list",
        "muster queue list --format json | jq '.queues[] | {name, gpus: .meters.gpus}'",
    ),
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told.",
)

_COUNTED = (Phase.PENDING, Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING)


@app.callback()
def _group() -> None:
    """Queues: use against quota."""


@app.command("list", epilog=EPILOG)
def listed(
    *,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show what every queue is entitled to, uses, borrows and lends, and what waits in it."""
    reports = clusters.ask(_reports, kubeconfig=kubeconfig, context=context)
    if output is Format.JSON:
        rendering.as_json({"queues": [_json(report) for report in reports]})
    else:
        show(reports)


def show(reports: list[QueueReport]) -> None:
    """Write the tables, and a note for each thing that is wrong with a queue."""
    headings = (
        "queue",
        "meter",
        *map(Number, ("nominal", "used", "borrowed", "lent", "pending")),
        Number("waiting"),
        Number("running"),
    )
    rendering.table("Queues", headings, [row for report in reports for row in _rows(report)])
    if any(report.budgets for report in reports):
        rendering.table(
            "Budgets", rendering.BUDGET_HEADINGS, [row for r in reports for row in rendering.budget_rows(r)]
        )
    for report in reports:
        for condition in report.conditions:
            if condition.status is not ConditionStatus.TRUE:
                active = " is not active" if condition.type == "Active" else ""
                rendering.note(f"queue {report.name}{active}: {condition.message}")


async def _reports(cluster: Cluster) -> list[QueueReport]:
    found = await cluster.every(kinds.QUEUES)
    return sorted((statuses.queue(obj) for obj in found), key=lambda report: report.name)


def _rows(report: QueueReport) -> list[tuple[str, ...]]:
    """Return a row for each meter; what is counted by gangs stands in the first."""
    waiting, running = report.gangs.get(Phase.PENDING, 0), report.gangs.get(Phase.RUNNING, 0)
    counts = (str(waiting or "-"), str(running or "-"))
    rows = rendering.use_rows(report) or [(report.name, *("-" for _ in range(6)))]
    return [(*row, *(counts if at == 0 else ("", ""))) for at, row in enumerate(rows)]


def _json(report: QueueReport) -> dict[str, Any]:
    active = next((c for c in report.conditions if c.type == "Active"), None)
    return {
        "name": report.name,
        "active": active is not None and active.status is ConditionStatus.TRUE,
        "message": active.message if active else "",
        "conditions": {
            c.type: {"status": c.status, "reason": c.reason, "message": c.message} for c in report.conditions
        },
        "meters": {meter: rendering.use(use) for meter, use in sorted(report.meters.items())},
        "budgets": [rendering.budget(budget) for budget in report.budgets],
        "gangs": {phase: report.gangs.get(phase, 0) for phase in _COUNTED},
    }
