"""`--watch` in a process of its own: on a terminal and in a pipe each state can be read as soon as it is known."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.test_stop import GROUP, queue, served
from tests.integration.kube.fake_api import FakeApi

CODE = """
import signal
from admission import cli
from admission.cli.output import watch_output
watch_output.POLL_SECONDS = 0.05
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.main()
"""

HOLD = {"reason": "QueueStopped", "message": "queue lab is stopped", "details": {"queue": "lab"}}


def gang(phase: str, **status: Any) -> dict[str, Any]:
    meta = {"name": "train", "namespace": "ml"}
    return {"metadata": meta, "spec": {"queue": "lab", "size": 1}, "status": {"phase": phase, **status}}


@pytest.fixture
def api(kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A queue with a gang that waits."""
    fake = FakeApi()
    fake.put(f"{GROUP}/queues", queue("lab"))
    put(fake, gang("Pending", position=1, hold=HOLD))
    with served(fake):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(fake.url)))
        yield fake


def put(fake: FakeApi, obj: dict[str, Any]) -> None:
    fake.put(f"{GROUP}/gangs", obj)
    fake.put(f"{GROUP}/namespaces/ml/gangs", obj)


@contextmanager
def watched(words: str, *, terminal: bool) -> Iterator[Callable[[str], str]]:
    """Run a command and yield what reads its output up to some text; interrupted at the end, it ends as promised.

    It takes an interrupt also where the tests were started in the background, and their shell has it ignored.
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", CODE, *words.split(), "--watch"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=buffered)
    os.close(theirs)

    def read_until(text: str) -> str:
        got = ""
        while text not in got:
            got += os.read(ours, 4096).decode()
        return got

    with closing(os.fdopen(ours, "rb", buffering=0)):
        try:
            yield read_until
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, b"")


@pytest.mark.parametrize(
    ("words", "terminal"),
    [("gang list", True), ("gang list", False), ("why ml/train", True)],
    ids=["gangs on a terminal", "gangs in a pipe", "why on a terminal"],
)
def test_each_state_is_printed_when_it_is_known(api: FakeApi, words: str, terminal: bool) -> None:
    with watched(words, terminal=terminal) as read_until:
        assert "Traceback" not in read_until("queue lab is stopped")

        put(api, gang("Running"))
        read_until("unning" if words.startswith("why") else "Running")


def test_a_watched_list_of_queues_is_printed_when_it_is_known(api: FakeApi) -> None:
    with watched("queue list", terminal=True) as read_until:
        read_until("lab")

        api.put(f"{GROUP}/queues", queue("speech"))
        read_until("speech")
