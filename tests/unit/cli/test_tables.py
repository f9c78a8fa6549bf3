"""Tables on terminals of several widths are those of `tables/`; `MUSTER_REGENERATE=1` writes them again."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admission.api.muster import status_views
from admission.cli import terminal
from admission.cli.gang import reports as gang_reports
from admission.cli.queue import list_command
from admission.cli.terminal import Number, Overflow

FOLDER = Path(__file__).parent / "tables"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
LONG = "QuotaExceeded: queue speech-recognition has 2 gpus left (nominal 16, used 14), the gang needs 8; 6 have to end"


def queue(name: str, parent: str = "", *, budget: bool = False, waiting: int = 0, **used: str) -> dict[str, Any]:
    meters = [{"meter": meter, "nominal": "16", "used": amount, "borrowed": "2"} for meter, amount in used.items()]
    budgets = [{"meter": "gpus", "hours": "1000", "spent": "12.5", "period": "Month", "onExhausted": "Hold"}]
    status = {"meters": meters, "gangs": {"pending": waiting, "running": 2}}
    spec = {"parent": parent} if parent else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {**status, "budgets": budgets if budget else []}}


def gang(name: str, phase: str, *, hold: str = "", nodes: int = 0) -> dict[str, Any]:
    reason, _, message = hold.partition(": ")
    plan = [{"pod": f"{name}-{at}", "node": f"gpu-node-{at}", "claims": []} for at in range(nodes)]
    charges = {"gpus": "16", "claims": "2", "gpu-memory": "1280Gi"} if plan else {}
    status = {"phase": phase, "pods": 2, "plan": plan, "charges": charges}
    held = {"hold": {"reason": reason, "message": message, "details": {}}} if hold else {}
    meta = {"name": name, "namespace": "speech"}
    return {"metadata": meta, "spec": {"queue": "speech-recognition", "size": 2}, "status": status | held}


QUEUES = [
    queue("cluster", gpus="0"),
    queue("speech-recognition", "cluster", budget=True, waiting=3, gpus="14", memory="40Gi"),
    *(queue(f"team-{letter}", "cluster", gpus="1") for letter in "abcd"),
]
GANGS = [
    gang("pretrain-20f7d", "Running", nodes=2),
    gang("evaluate-the-whole-corpus-b286c", "Admitted", nodes=12),
    gang("ablation-x7k2p", "Pending", hold=LONG),
    gang("no-such-device-p9d2s", "Pending", hold="NoFeasiblePlacement: no device of class tpu.example.com is there"),
]


def queues(overflow: Overflow) -> None:
    list_command.show(list_command.with_sums(QUEUES), overflow)


def gangs(overflow: Overflow) -> None:
    gang_reports.show([status_views.gang(obj) for obj in GANGS], overflow)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the standard output a terminal with some columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("listed", [queues, gangs], ids=["queues", "gangs"])
def test_a_list_is_cut_to_its_terminal(
    listed: Callable[[Overflow], None],
    width: int,
    columns: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns(width)
    listed(Overflow.CUT)

    shown = STYLE.sub("", capsys.readouterr().out)
    path = FOLDER / f"{listed.__name__}-{width}.txt"
    if os.environ.get("MUSTER_REGENERATE") == "1":
        path.write_text(shown)
    assert shown == path.read_text()
    assert max(map(len, shown.splitlines())) <= width


def test_a_word_is_never_cut(columns: Callable[[int], None], capsys: pytest.CaptureFixture[str]) -> None:
    columns(20)
    for overflow in Overflow:
        terminal.table("T", ("name", Number("n"), "why"), [("a-long-name-of-one-word", 7, LONG)], overflow=overflow)

    for line in STYLE.sub("", capsys.readouterr().out).splitlines():
        assert set(line.split()) <= {"T", "NAME", "N", "WHY", "a-long-name-of-one-word", "7", "…", *LONG.split()}


def test_text_that_is_folded_is_all_there_in_its_column(
    columns: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    columns(60)
    terminal.table("T", ("check", "what was seen", "mend"), [("rights", LONG, "give it"), ("clock", "it is right", "")])

    _, heading, *rows, last = STYLE.sub("", capsys.readouterr().out).rstrip().splitlines()
    at, end = heading.index("WHAT"), heading.index("MEND")
    assert " ".join(row[at:end].strip() for row in rows) == LONG
    assert last.split() == ["clock", "it", "is", "right", "-"]


def test_what_is_wrapped_is_whole(columns: Callable[[int], None], capsys: pytest.CaptureFixture[str]) -> None:
    columns(40)
    gangs(Overflow.WRAP)

    shown = STYLE.sub("", capsys.readouterr().out)
    assert f"  {LONG}\n" in shown
    assert "CHARGES" in shown
