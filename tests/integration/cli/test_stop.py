"""`muster queue show`, `stop` and `resume`, `--watch`, and names that the shell completes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from admission.cli import completion
from admission.cli.output import watch_output
from admission.errors import ClusterUnavailableError
from tests.integration.kube.fake_api import FakeApi
from tests.unit.cli.conftest import Muster

GROUP = "/apis/muster.dev/v1alpha1"


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


@contextmanager
def served(api: FakeApi) -> Iterator[None]:
    """Serve in a thread of its own: commands have a loop of theirs."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(api.start())
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(api.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def api(kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A lab with two queues, one of which has a gang that waits."""
    fake = FakeApi()
    for one in (queue("lab"), queue("vision", parent="lab"), queue("speech", parent="lab", stopPolicy="Hold")):
        fake.put(f"{GROUP}/queues", one)
    hold = {"reason": "QueueStopped", "message": "queue lab is stopped", "details": {"queue": "lab"}}
    for name, status in {
        "train": {"phase": "Pending", "position": 1, "hold": hold},
        "over": {"phase": "Finished"},
    }.items():
        meta = {"name": name, "namespace": "ml"}
        fake.put(f"{GROUP}/gangs", {"metadata": meta, "spec": {"queue": "vision", "size": 1}, "status": status})
    with served(fake):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(fake.url)))
        yield fake


def policy(api: FakeApi, name: str) -> str | None:
    found: str | None = api.objects[f"{GROUP}/queues"][name]["spec"].get("stopPolicy")
    return found


def test_a_queue_is_stopped_and_resumed(muster: Muster, api: FakeApi) -> None:
    done = muster("queue", "stop", "lab")
    assert (done.returncode, policy(api, "lab")) == (0, "Hold")
    assert done.stdout == "queue lab lets no gang in; what runs goes on\n"
    assert done.stderr == "note: so do the queues below it: speech, vision\n"

    done = muster("queue", "stop", "lab", "--drain")
    assert (done.returncode, policy(api, "lab")) == (0, "HoldAndDrain")

    done = muster("queue", "resume", "lab")
    assert (done.stdout, policy(api, "lab")) == ("queue lab lets gangs in\n", "None")


def test_a_queue_that_is_already_stopped_is_not_written_again(muster: Muster, api: FakeApi) -> None:
    done = muster("queue", "stop", "speech")

    assert done.stdout == "queue speech lets no gang in; what runs goes on as before\n"
    assert not [asked for asked in api.asked if asked.method == "PATCH"]


def test_resuming_a_queue_below_a_stopped_parent_prints_a_note(muster: Muster, api: FakeApi) -> None:
    muster("queue", "stop", "lab")

    done = muster("queue", "resume", "speech")

    assert done.stderr == "note: queue lab above it is stopped still: `muster queue resume lab`\n"


@pytest.mark.parametrize("words", [("stop", "vison"), ("resume", "vison"), ("show", "vison")])
def test_a_queue_that_there_is_not_is_answered_with_those_that_there_are(
    muster: Muster, api: FakeApi, words: tuple[str, str]
) -> None:
    done = muster("queue", *words)

    assert done.returncode == 2
    assert "there is no queue vison; there are: lab, speech, vision" in done.stderr


def test_queue_show_prints_the_place_and_the_gangs_of_a_queue(muster: Muster, api: FakeApi) -> None:
    assert "Queue lab (a root; below it: speech, vision); BestEffortFIFO" in muster("queue", "show", "lab").stdout
    assert "below lab); BestEffortFIFO; stopped: Hold" in muster("queue", "show", "speech").stdout

    shown = muster("queue", "show", "vision").stdout
    assert "ml/train" in shown
    assert "ml/over" not in shown
    told = json.loads(muster("queue", "show", "vision", "--format", "json").stdout)
    assert (told["name"], told["parent"], told["children"], told["stopPolicy"]) == ("vision", "lab", [], "None")
    assert [gang["name"] for gang in told["members"]] == ["train"]


def test_a_watched_queue_is_shown_again_when_the_queue_has_changed(
    muster: Muster, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    happens: list[Callable[[], Any]] = [
        lambda: None,
        lambda: api.put(f"{GROUP}/queues", queue("vision", parent="lab", stopPolicy="Hold")),
    ]

    def sleep(_seconds: float) -> None:
        if not happens:
            raise KeyboardInterrupt
        happens.pop(0)()

    monkeypatch.setattr("time.sleep", sleep)

    done = muster("queue", "show", "vision", "--watch")

    assert done.returncode == 130
    assert headings(done.stdout, "vision") == [
        "Queue vision (below lab); BestEffortFIFO",
        "Queue vision (below lab); BestEffortFIFO; stopped: Hold",
    ]


def headings(printed: str, name: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith(f"Queue {name} ")]


@pytest.mark.parametrize(
    ("words", "phase", "wanted", "told"),
    [
        (("stop", "speech", "--drain", "--watch"), "Running", "HoldAndDrain", "; stopped: HoldAndDrain"),
        (("resume", "speech", "-w"), "Admitted", "None", ""),
    ],
)
def test_a_stopped_or_resumed_queue_is_watched_until_drained_or_filled(  # noqa: PLR0917 - what is asked and what comes of it
    muster: Muster,
    api: FakeApi,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    phase: str,
    wanted: str,
    told: str,
) -> None:
    gang = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"queue": "speech", "size": 1}}
    happens: list[Callable[[], Any]] = [lambda: api.put(f"{GROUP}/gangs", {**gang, "status": {"phase": phase}})]

    def sleep(_seconds: float) -> None:
        if not happens:
            raise KeyboardInterrupt
        happens.pop()()

    monkeypatch.setattr("time.sleep", sleep)

    done = muster("queue", *words)

    assert (done.returncode, policy(api, "speech")) == (130, wanted)
    assert headings(done.stdout, "speech") == [f"Queue speech (below lab); BestEffortFIFO{told}"] * 2
    assert phase in done.stdout


@pytest.mark.parametrize("words", [("gang", "list", "-n", "ml"), ("why", "ml/train")], ids=["gang list", "why"])
def test_watching_gangs_shows_what_has_changed(
    muster: Muster, api: FakeApi, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A poll without a change shows nothing anew."""
    gang = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"queue": "vision", "size": 1}}
    hold = {"reason": "QueueStopped", "message": "queue lab is stopped", "details": {"queue": "lab"}}

    def put(phase: str, **status: Any) -> None:
        api.put(f"{GROUP}/namespaces/ml/gangs", {**gang, "status": {"phase": phase, **status}})

    put("Pending", position=1, hold=hold)
    happens = [lambda: put("Running"), lambda: None]

    def sleep(_seconds: float) -> None:
        if not happens:
            raise KeyboardInterrupt
        happens.pop()()

    monkeypatch.setattr("time.sleep", sleep)

    done = muster(*words, "--watch")

    assert done.returncode == 130
    assert (done.stdout.count("queue lab is stopped"), done.stdout.count("Running")) == (1, 1)


def test_the_api_server_selects_by_labels(muster: Muster, api: FakeApi) -> None:
    assert muster("queue", "list", "-l", "team in (a,b)").returncode == 0

    assert api.count("GET", f"{GROUP}/queues", labelSelector="team in (a,b)") == 1


def test_watching_a_queue_continues_while_the_cluster_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    answers: list[str | BaseException] = ["one", ClusterUnavailableError("no answer"), "two", KeyboardInterrupt()]

    def look() -> str:
        found = answers.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with pytest.raises(KeyboardInterrupt):
        watch_output.poll_and_print(look, seen.append, again=True)

    assert seen == ["one", "two"]
    assert capsys.readouterr().err == "note: no answer; it is tried again\n"


def completed(muster: Muster, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What the shell offers at the end of a line."""
    monkeypatch.setenv("_MUSTER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return muster().stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("muster que", ["queue"]),
        ("muster queue st", ["stop"]),
        ("muster queue stop ", ["lab", "speech", "vision"]),
        ("muster queue show v", ["vision"]),
        ("muster why ml/t", ["ml/train"]),
    ],
)
def test_shell_completion_offers_commands_queues_and_gangs(
    muster: Muster, api: FakeApi, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    assert completed(muster, monkeypatch, line) == offered


def test_without_a_cluster_there_are_no_names_and_no_errors(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    assert completed(muster, monkeypatch, "muster queue stop ") == []
    assert completion.RETRY_POLICY.timeout <= 2
