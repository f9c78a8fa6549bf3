"""What a run on the control plane costs: processor seconds of every process, and the requests that the API server saw.

Both are read before and after, and only the differences count. Requests are the API server's own count, by verb and
resource, without watches, leases, and what the benchmark itself asks for.
"""

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.controlplane.clients import Client

_SAMPLE = re.compile(
    r"^(apiserver_request_total|apiserver_admission_webhook_request_total)\{(.*)\} (\S+)$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

_NOT_OURS = frozenset({"WATCH", "LIST", "CONNECT", "DELETECOLLECTION"})
"""Verbs of watches, and of what only the benchmark does during a run."""

_ASIDE = frozenset({"leases", "tokenreviews", "subjectaccessreviews", "selfsubjectreviews"})


@dataclass(frozen=True, slots=True)
class Account:
    """Seconds by process, and requests by `verb resource`; a webhook's calls are `webhook NAME`."""

    seconds: Mapping[str, float]
    requests: Mapping[str, float]

    @classmethod
    def read(cls, client: Client, pids: Mapping[str, int]) -> Self:
        seconds = {name: cpu_seconds(pid) for name, pid in pids.items()}
        return cls(seconds, _requests(client.text("/metrics")))

    def since(self, before: "Account") -> "Account":
        """Return what has been spent between the two."""
        seconds = {name: spent - before.seconds[name] for name, spent in self.seconds.items()}
        requests = {what: n - before.requests.get(what, 0) for what, n in self.requests.items()}
        return Account(seconds, {what: n for what, n in sorted(requests.items()) if n})


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, from Linux' /proc (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _requests(metrics: str) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for name, text, value in _SAMPLE.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if name == "apiserver_admission_webhook_request_total":
            found[f"webhook {labels['name'].partition('.')[0]}"] += float(value)
        elif labels["verb"] not in _NOT_OURS and labels["resource"] not in _ASIDE and labels["resource"]:
            found[_what(labels)] += float(value)
    return found


def _what(labels: Mapping[str, str]) -> str:
    resource = "/".join(filter(None, (labels["resource"], labels.get("subresource", ""))))
    refused = "" if labels["code"].startswith("2") else f" {labels['code']}"
    return f"{labels['verb'].lower()} {resource}{refused}"
