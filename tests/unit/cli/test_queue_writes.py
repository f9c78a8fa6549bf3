"""`muster queue create` and `edit`: the spec that options make, and what becomes of mistakes in an editor."""

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.muster.queues import HoldAt
from admission.api.schemas import queue as queue_schema
from admission.api.values.decoding import Json
from admission.cli.queue import edit as queue_edit, spec_options
from admission.cli.queue.edit import EditCancelledError
from admission.cli.queue.spec_options import SpecOptions
from admission.errors import ClusterUnavailableError, FixError, ForbiddenError
from tests.unit.cli.conftest import Muster

SPECS: dict[str, tuple[Json, SpecOptions, Json]] = {
    "a new queue": (
        {},
        SpecOptions(
            quotas=("gpus=4", "memory=640Gi"),
            borrow_limits=("gpus=2",),
            lend_limits=("gpus=1",),
            parent="research",
            namespaces=("vision",),
            is_default=True,
            priority_classes=("urgent=100", "low=-1"),
            hold_at=HoldAt.WORKLOAD,
            max_wait="15m",
        ),
        {
            "parent": "research",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "vision"}},
            "default": True,
            "holdAt": "Workload",
            "maxWait": "15m",
            "quotas": [
                {"meter": "gpus", "nominal": "4", "borrowingLimit": "2", "lendingLimit": "1"},
                {"meter": "memory", "nominal": "640Gi"},
            ],
            "priorityClasses": [{"name": "urgent", "value": 100}, {"name": "low", "value": -1}],
        },
    ),
    "what is there stays, and is changed in its place": (
        {
            "cohort": "x",
            "quotas": [{"meter": "a", "nominal": "1"}, {"meter": "b", "nominal": "2"}],
            "priorityClasses": [{"name": "low", "value": 1}],
        },
        SpecOptions(quotas=("c=3", "a=4"), lend_limits=("b=1",), priority_classes=("low=2",), is_default=False),
        {
            "cohort": "x",
            "default": False,
            "quotas": [
                {"meter": "a", "nominal": "4"},
                {"meter": "b", "nominal": "2", "lendingLimit": "1"},
                {"meter": "c", "nominal": "3"},
            ],
            "priorityClasses": [{"name": "low", "value": 2}],
        },
    ),
    "what is removed goes before what is set, and an empty list with it": (
        {
            "quotas": [{"meter": "a", "nominal": "1", "lendingLimit": "1"}, {"meter": "b", "nominal": "2"}],
            "priorityClasses": [{"name": "low", "value": 1}],
        },
        SpecOptions(quotas=("a=4",), removed_quotas=("b", "a"), removed_classes=("low",)),
        {"quotas": [{"meter": "a", "nominal": "4"}]},
    ),
    "fields of idle are set beside others of it": (
        {"idle": {"belowPercent": 7, "after": "2h"}},
        SpecOptions(idle=("after=4h", "action=Evict")),
        {"idle": {"belowPercent": 7, "after": "4h", "action": "Evict"}},
    ),
    "idle is removed, or begins anew": (
        {"idle": {"belowPercent": 7}, "parent": "all"},
        SpecOptions(idle=("belowPercent=9",), removes_idle=True),
        {"idle": {"belowPercent": 9}, "parent": "all"},
    ),
    "no gang counts as idle": (
        {"idle": {"belowPercent": 7}, "parent": "all"},
        SpecOptions(removes_idle=True),
        {"parent": "all"},
    ),
    "several namespaces": (
        {},
        SpecOptions(namespaces=("a", "b")),
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]
            }
        },
    ),
    "labels of namespaces": (
        {},
        SpecOptions(namespace_selector="team=a,tier=b"),
        {"namespaceSelector": {"matchLabels": {"team": "a", "tier": "b"}}},
    ),
}


@pytest.mark.parametrize(("before", "options", "after"), SPECS.values(), ids=SPECS)
def test_options_make_a_spec(before: Json, options: SpecOptions, after: Json) -> None:
    assert options.applied_to(before) == after
    assert options
    assert not SpecOptions()


WRONG_IDLE = {
    "percent=5": "--idle: there is no percent; it has belowPercent, after, action",
    "belowPercent=0": "--idle: belowPercent=0: it is a whole number from 1 to 100",
    "belowPercent=5.5": "--idle: belowPercent=5.5: it is a whole number from 1 to 100",
    "action=evict": "--idle: action=evict: it is one of Report, PreemptFirst, Evict",
}


@pytest.mark.parametrize(("text", "message"), WRONG_IDLE.items(), ids=WRONG_IDLE)
def test_a_field_of_idle_that_it_cannot_have_is_refused(text: str, message: str) -> None:
    with pytest.raises(FixError, match=f"^{re.escape(message)}$"):
        SpecOptions(idle=(text,)).applied_to({})


def test_a_field_of_a_queue_has_an_option_or_the_page_says_that_it_has_none() -> None:
    page = Path("docs/commands.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"These fields of a Queue's spec have no option, [^:]*: ([^.]*)\.", page)
    options = SpecOptions(
        quotas=("a=1",),
        parent="p",
        namespaces=("a",),
        is_default=True,
        priority_classes=("a=1",),
        hold_at=HoldAt.POD,
        max_wait="1h",
        idle=("after=1h",),
    )
    spec = queue_schema.schema()["properties"]["spec"]["properties"]
    assert {*re.findall(r"`(\w+)`", told), *options.applied_to({}), "stopPolicy"} == set(spec)


REMOVED_WRONGLY = {
    "a quota that there is not": (
        SpecOptions(removed_quotas=("gpu",)),
        "--remove-quota: the queue has no gpu; it has: gpus, memory",
    ),
    "a priority class where there is none": (
        SpecOptions(removed_classes=("low",)),
        "--remove-priority-class: the queue has no low; it has: none",
    ),
    "a limit of a quota that goes": (
        SpecOptions(removed_quotas=("gpus",), lend_limits=("gpus=1",)),
        "--lending-limit: the queue has no quota of gpus; add --quota gpus=AMOUNT",
    ),
}


@pytest.mark.parametrize(("options", "message"), REMOVED_WRONGLY.values(), ids=REMOVED_WRONGLY)
def test_what_a_queue_does_not_have_is_not_removed(options: SpecOptions, message: str) -> None:
    before = {"quotas": [{"meter": "memory", "nominal": "1Gi"}, {"meter": "gpus", "nominal": "1"}]}

    with pytest.raises(FixError) as caught:
        options.applied_to(before)
    assert str(caught.value) == message


BAD = {
    "no amount": ("--quota gpus", "--quota: 'gpus' is not of the form gpus=16"),
    "no number": ("--quota gpus=many", "--quota: gpus=many: 'many' is not a Kubernetes quantity such as 8"),
    "a meter twice": ("--quota gpus=1 --quota gpus=2", "--quota: gpus is given twice"),
    "a limit without a quota": (
        "--borrowing-limit gpus=2",
        "--borrowing-limit: the queue has no quota of gpus; add --quota gpus=AMOUNT",
    ),
    "two selectors": ("-n a --namespace-selector b=c", "--namespace and --namespace-selector: give one of them"),
    "no labels": ("--namespace-selector team", "--namespace-selector: 'team' is not of the form team=a,tier=b"),
    "no priority": (
        "--priority-class urgent=high",
        "--priority-class: urgent=high: a priority is a whole number such as 100; higher goes first",
    ),
    "no time": ("--max-wait 4x", "--max-wait: '4x' is not a duration"),
    "no dry run": ("--dry-run maybe", "'--dry-run': 'maybe' is not one of 'none', 'client', 'server'"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_options_of_queue_create_are_told_by_name(muster: Muster, words: str, message: str) -> None:
    done = muster("queue", "create", "q", "--dry-run", "client", *words.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_a_queue_is_printed_without_a_cluster(muster: Muster) -> None:
    line = ("queue", "create", "q", "--quota", "gpus=4", "--dry-run", "client")
    wanted = spec_options.a_queue("q", SpecOptions(quotas=("gpus=4",)))

    assert yaml.safe_load(muster(*line, "-o", "yaml").stdout) == wanted
    assert muster(*line).stdout == "queue.muster.dev/q created (client dry run)\n"


BEFORE = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"parent": "root"}}


class Editor:
    """A user who makes one change after the other, and sees what the file says each time."""

    def __init__(self, *changes: Callable[[str], str]) -> None:
        self.changes = [*changes]
        self.seen: list[str] = []
        self.path = Path()

    def __call__(self, path: Path) -> None:
        self.path = path
        self.seen.append(path.read_text())
        path.write_text(self.changes.pop(0)(self.seen[-1]))


def to(parent: str) -> Callable[[str], str]:
    return lambda text: "\n".join(
        f"  parent: {parent}" if line.startswith("  parent:") else line for line in text.split("\n")
    )


def written(queue: Json) -> Json:
    """The API server: it refuses one parent, and does not answer for another one."""
    parent = queue["spec"]["parent"]
    errors: dict[str, Exception] = {
        "none": FixError("Queue q: spec.parent: there is no queue none\nand more"),
        "away": ClusterUnavailableError("it does not answer"),
        "forbidden": ForbiddenError("you may not patch queues"),
    }
    if parent in errors:
        raise errors[parent]
    return {**queue, "stored": True}


def test_a_queue_is_written_as_it_was_edited() -> None:
    editor = Editor(to("other"))

    made = queue_edit.in_editor(BEFORE, written, editor)

    assert made is not None
    assert (made["spec"], made["stored"]) == ({"parent": "other"}, True)
    assert editor.seen[0].startswith("# Edit the queue below.")
    assert not editor.path.exists()


@pytest.mark.parametrize("change", [str, lambda _: "", lambda text: f"# a remark\n{text}"], ids=["same", "empty", "#"])
def test_a_queue_that_was_not_changed_is_not_written(change: Callable[[str], str]) -> None:
    editor = Editor(change)

    assert queue_edit.in_editor(BEFORE, lambda queue: pytest.fail(str(queue)), editor) is None
    assert not editor.path.exists()


def test_what_is_wrong_is_written_above_the_text_until_it_is_right() -> None:
    editor = Editor(lambda text: f"{text}\n  parent: [", to("none"), to("other"))
    editor.changes[1] = lambda text: to("none")(text).replace("\n  parent: none", "", 1)

    made = queue_edit.in_editor(BEFORE, written, editor)

    assert made is not None
    _, broken, refused = editor.seen
    assert f"# {editor.path}:" in broken
    assert "# Queue q: spec.parent: there is no queue none\n# and more\n" in refused
    assert f"# {editor.path}:" not in refused


LEFT: dict[str, tuple[list[Any], str]] = {
    "a mistake that the user leaves": ([to("none"), str], "Queue q: spec.parent: there is no queue none\nand more"),
    "a cluster that does not answer": ([to("away")], "it does not answer"),
    "a right that is missing": ([to("forbidden")], "you may not patch queues"),
    "another name": (
        [lambda text: text.replace("name: q", "name: p"), str],
        "the file has to hold Queue q and nothing else: its kind and name cannot be changed",
    ),
}


@pytest.mark.parametrize(("changes", "message"), LEFT.values(), ids=LEFT)
def test_what_could_not_be_written_is_kept_in_a_file_that_is_named(changes: list[Any], message: str) -> None:
    editor = Editor(*changes)

    with pytest.raises((EditCancelledError, ClusterUnavailableError)) as left:
        queue_edit.in_editor(BEFORE, written, editor)

    assert str(left.value) == f"{message}\nNothing was changed; your text is kept in {editor.path}"
    assert editor.path.exists()
    editor.path.unlink()


def test_the_editor_is_the_one_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "editor"
    script.write_text("#!/bin/sh\necho edited with $1 > $2\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = tmp_path / "queue.yaml"
    monkeypatch.setenv("KUBE_EDITOR", f"{script} --wait")
    monkeypatch.setenv("EDITOR", "false")

    queue_edit._run_editor(path)
    assert path.read_text() == "edited with --wait\n"

    monkeypatch.delenv("KUBE_EDITOR")
    with pytest.raises(FixError, match="editor 'false' ended with 1; nothing was changed"):
        queue_edit._run_editor(path)
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    with pytest.raises(FixError, match=r"editor '/no/such/editor' cannot be run \(No such file or directory\)"):
        queue_edit._run_editor(path)
