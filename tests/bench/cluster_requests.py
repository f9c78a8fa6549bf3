"""What one gang costs the API server in requests and webhook calls, for gangs of several sizes and without any queue.

One control plane that writes an audit log, so that each request has its author. In turn: without a queue, with Muster
and gated pods of Jobs that enter the default queue, of Jobs that name it, with Jobs that are held as a whole, with
those of a queue that holds so what would wait, as it comes, and with Kueue. Jobs that fit come one `EVERY` so many
seconds, so that few of their writes fall together, and run for a second; counted is from the first one's creation until
all have ended and nothing more is written about them. Counts need no machine that is quiet.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from tests.bench import kueue
from tests.bench.cluster_sights import ObservedObjects
from tests.bench.cluster_speed import PATIENCE, USERS, Bench, bench_of
from tests.controlplane import ControlPlane, fleet, users
from tests.e2e import rights

WAYS = ("plain", "Pin", "Named", "Workload", "Auto", "Kueue")
PODS = (1, 4, 32)
GPUS = 8
WARM_UP = 2
EVERY = 0.5
SETTLING = 8.0
"""Seconds after the last pod has ended in which what is left is written: Events of holds, and statuses."""

_AUTHORS = {rights.USER: "muster", kueue.USER: "kueue"}
_WATCHING = frozenset({"list", "watch"})
_ASIDE = frozenset({"leases", "tokenreviews", "subjectaccessreviews", "selfsubjectreviews"})
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


def measure(*, gangs: int, pods: tuple[int, ...] = PODS, ways: tuple[str, ...] = WAYS) -> dict[str, Any]:
    """Count in every way; by way and number of pods, requests and calls for each gang by `AUTHOR: WHAT`."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    quota = gangs * max(pods)
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder, "policy.json"), Path(folder, "audit.log")
        policy.write_text(json.dumps(_POLICY))
        flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
        with ControlPlane(extra_users=USERS, extra_flags={"kube-apiserver": flags}) as control_plane:
            fleet.install(control_plane.client(), fleet.demo_fleet([GPUS] * -(-quota // GPUS)))
            for way in ways:
                with bench_of(control_plane, way, quota=quota) as bench:
                    _counted(bench, log, WARM_UP, min(pods))
                    found[way] = {str(size): _counted(bench, log, gangs, size) for size in pods}
    return {"gangs": gangs, "ways": found}


def _counted(bench: Bench, log: Path, gangs: int, pods: int) -> dict[str, float]:
    with ObservedObjects(bench.namespace) as sights:
        start, before = log.stat().st_size, bench.account()
        bench.submit(gangs, pods=pods, every=EVERY)
        sights.wait("ended", gangs * pods, within=PATIENCE)
        time.sleep(SETTLING)
        spent = bench.account().since(before).requests
        calls = {what: n for what, n in spent.items() if _is_call(what)}
        requests = dict(_requests(log, start, bench.namespace.name))
    bench.clear()
    return {what: n / gangs for what, n in sorted((requests | calls).items())}


def _requests(log: Path, start: int, namespace: str) -> Counter[str]:
    """Count requests in the namespace, and a queue's elsewhere, since a position in the audit log."""
    found: Counter[str] = Counter()
    with log.open() as lines:
        lines.seek(start)
        for line in lines:
            event = json.loads(line)
            about, author = event.get("objectRef") or {}, event["user"]["username"]
            if event["verb"] in _WATCHING or about.get("resource") in _ASIDE or author == users.ADMIN:
                continue
            if author in _AUTHORS or about.get("namespace") == namespace:
                resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
                refused = "" if event["responseStatus"]["code"] < 300 else f" {event['responseStatus']['code']}"
                found[f"{_AUTHORS.get(author, 'others')}: {event['verb']} {resource}{refused}"] += 1
    return found


def table(result: Mapping[str, Any]) -> Group:
    """Show for each number of pods what a gang costs in each way."""
    ways = result["ways"]
    return Group(
        *(_table(size, {way: found[size] for way, found in ways.items()}) for size in next(iter(ways.values())))
    )


def _table(size: str, ways: Mapping[str, Mapping[str, float]]) -> Table:
    made = Table(title=f"requests and calls for each gang of {size}")
    made.add_column("")
    for way in ways:
        made.add_column(way, justify="right")
    sums = {"all requests": _is_request, "of these, the queue's": _is_queues, "all calls of webhooks": _is_call}
    for title, wanted in sums.items():
        made.add_row(title, *(f"{sum(n for what, n in found.items() if wanted(what)):.1f}" for found in ways.values()))
    for what in sorted({what for found in ways.values() for what in found}):
        made.add_row(what, *(f"{found.get(what, 0):.1f}" for found in ways.values()))
    return made


def _is_call(what: str) -> bool:
    return what.startswith("webhook ")


def _is_request(what: str) -> bool:
    return not _is_call(what)


def _is_queues(what: str) -> bool:
    return what.startswith((*_AUTHORS.values(),))
