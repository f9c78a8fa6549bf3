"""`muster queue edit`: a Queue in an editor, as `kubectl edit` has it, or changed by options."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from admission.api.muster import queues
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, manifest_reader, object_writes, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.object_writes import DryRun, DryRunOption, ObjectFormatOption
from admission.cli.queue import stop
from admission.cli.queue.spec_options import (
    BorrowOption,
    ClassOption,
    DefaultOption,
    HoldAtOption,
    IdleOption,
    LendOption,
    MaxWaitOption,
    NamespacesOption,
    ParentOption,
    QuotaOption,
    RemoveClassOption,
    RemoveIdleOption,
    RemoveQuotaOption,
    SelectorOption,
    SpecOptions,
)
from admission.cli.queue.stop import QueueArgument
from admission.errors import FixError, ForbiddenError, GoneError, RetryError
from admission.kube.cache import watched_resources
from admission.kube.client import paths
from admission.kube.client.connection import Request

EDITORS = ("KUBE_EDITOR", "EDITOR")
"""The variables that name the editor, as for kubectl; without them it is vi."""

EPILOG = apps.epilog(
    (
        "muster queue edit research",
        "KUBE_EDITOR='code --wait' muster queue edit research",
        "muster queue edit research --quota gpus=32 --borrowing-limit gpus=8",
        "muster queue edit research --remove-quota memory --remove-priority-class low",
        "muster queue edit research --idle after=4h --idle action=Evict",
    ),
    "Options change what they name, and open no editor; what is removed goes first. What is wrong with an edited queue "
    "is written above it and the editor opens again; a file that is saved without another change is kept, and named.",
    "Exit codes: 0 done, or nothing was changed; 1 the cluster does not answer; 2 there is no such queue, it would be "
    "refused, or a right is missing.",
)

HEADER = (
    "Edit the queue below. Lines that begin with '#' are ignored, and an empty file ends the editing.",
    "What is wrong with it is written here, and the file opens again.",
)

Edit = Callable[[Path], None]


class EditCancelledError(FixError):
    """The user has left an edited object with a mistake in it as it is."""


def edit(
    name: QueueArgument,
    *,
    quotas: QuotaOption = None,
    borrow_limits: BorrowOption = None,
    lend_limits: LendOption = None,
    parent: ParentOption = "",
    namespaces: NamespacesOption = None,
    namespace_selector: SelectorOption = "",
    default: DefaultOption = None,
    priority_classes: ClassOption = None,
    hold_at: HoldAtOption = None,
    max_wait: MaxWaitOption = "",
    idle: IdleOption = None,
    removed_quotas: RemoveQuotaOption = None,
    removed_classes: RemoveClassOption = None,
    removes_idle: RemoveIdleOption = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: ObjectFormatOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Change a queue in an editor, or by options."""
    options = SpecOptions(
        quotas=quotas or (),
        borrow_limits=borrow_limits or (),
        lend_limits=lend_limits or (),
        parent=parent,
        namespaces=namespaces or (),
        namespace_selector=namespace_selector,
        is_default=default,
        priority_classes=priority_classes or (),
        hold_at=hold_at,
        max_wait=max_wait,
        idle=idle or (),
        removed_quotas=removed_quotas or (),
        removed_classes=removed_classes or (),
        removes_idle=removes_idle,
    )

    def write(queue: Json) -> Json:
        async def replace(cluster: Cluster) -> Json:
            return await _replace(cluster, queue, dry_run)

        if dry_run is DryRun.CLIENT:
            return queue
        return cluster_options.query(replace, kubeconfig=kubeconfig, context=context)

    before = cluster_options.query(partial(_read, name=name), kubeconfig=kubeconfig, context=context)
    if options:
        wanted = {**before, "spec": options.applied_to(before.get("spec") or {})}
        made = write(wanted) if wanted != before else None
    else:
        made = in_editor(before, write, _run_editor)
    if made is None:
        terminal.say(f"queue {name} is as it was")
        return
    object_writes.show([made], output, dry_run, "edited")


def in_editor(before: Json, write: Callable[[Json], Json], edit_file: Edit) -> Json | None:
    """Have the user edit an object until it is written; return it as stored, None if nothing was changed.

    Raises EditCancelledError if the user leaves a mistake as it is or lacks a right, or RetryError; the file is kept
    then, and the error names it.
    """
    original = object_writes.as_yaml(before)
    text, trouble = original, ""
    path = _new_file()
    kept = False
    try:
        while True:
            path.write_text(_comment((*HEADER, *trouble.splitlines())) + text, encoding="utf-8")
            edit_file(path)
            edited = _without_comments(path.read_text(encoding="utf-8"))
            if not edited.strip() or edited == original:
                return None
            kept = True
            if trouble and edited == text:
                raise EditCancelledError(f"{trouble}\nNothing was changed; your text is kept in {path}")
            text = edited
            try:
                made = write(_read_edited(path, before))
            except RetryError as error:
                raise type(error)(f"{error}\nNothing was changed; your text is kept in {path}") from error
            except ForbiddenError as error:
                raise EditCancelledError(f"{error}\nNothing was changed; your text is kept in {path}") from error
            except FixError as error:
                trouble = str(error)
            else:
                kept = False
                return made
    finally:
        if not kept:
            path.unlink(missing_ok=True)


def _new_file() -> Path:
    with tempfile.NamedTemporaryFile("w", prefix="muster-edit-", suffix=".yaml", delete=False) as file:
        return Path(file.name)


def _run_editor(path: Path) -> None:
    """Have the user edit a file. Raises FixError if the editor cannot be run, or ends with an error."""
    editor = next(filter(None, map(os.environ.get, EDITORS)), "vi")
    try:
        done = subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603 - the user names the editor
    except OSError as error:
        raise FixError(
            f"editor {editor!r} cannot be run ({error.strerror}): name another one in {' or '.join(EDITORS)},"
            " or set fields by options (`muster queue edit --help`)"
        ) from error
    if done.returncode:
        raise FixError(f"editor {editor!r} ended with {done.returncode}; nothing was changed")


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"# {line}\n" for line in lines)


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _read_edited(path: Path, before: Json) -> Json:
    """Return the object in a file. Raises FixError if it is none, or another one than before."""
    bodies = [one.body for one in manifest_reader.read([str(path)])]
    name = before["metadata"]["name"]
    if [(body.get("kind"), (body.get("metadata") or {}).get("name")) for body in bodies] != [("Queue", name)]:
        raise FixError(f"the file has to hold Queue {name} and nothing else: its kind and name cannot be changed")
    return bodies[0]


async def _read(cluster: Cluster, name: str) -> Json:
    """Return a queue without what only the API server and Muster write. Raises FixError if there is none."""
    found = await cluster.get_object(watched_resources.QUEUES, name)
    if found is None:
        raise stop.unknown_queue(name, map(queues.decode, await cluster.list_objects(watched_resources.QUEUES)))
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Queue",
        "metadata": metadata,
        "spec": found.get("spec") or {},
    }


async def _replace(cluster: Cluster, queue: Json, dry_run: DryRun) -> Json:
    """Replace a queue by an edited one. Raises FixError with all that is wrong with it."""
    for warning in await object_writes.check(cluster, [queue]):
        terminal.note(warning)
    path = paths.join(watched_resources.QUEUES.path, queue["metadata"]["name"])
    parameters: dict[str, Any] = {"dryRun": "All"} if dry_run is DryRun.SERVER else {}
    try:
        return await cluster.connection.send(Request(method="PUT", path=path, params=parameters, body=queue))
    except GoneError as error:
        raise FixError(f"queue {queue['metadata']['name']} was deleted meanwhile") from error
