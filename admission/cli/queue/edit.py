"""`muster queue edit`: a Queue in an editor, as `kubectl edit` has it, or changed by options."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, object_writes, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.object_writes import DryRun, DryRunOption, ObjectFormatOption
from admission.cli.queue import stop
from admission.cli.queue.spec_options import (
    BorrowOption,
    ClassOption,
    DefaultOption,
    HoldAtOption,
    LendOption,
    NamespacesOption,
    ParentOption,
    QuotaOption,
    SelectorOption,
    SpecOptions,
)
from admission.cli.queue.stop import QueueArgument
from admission.errors import ConflictError, FixError, GoneError, RetryError
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
    ),
    "Options change what they name, and open no editor. What is wrong with an edited queue is written above it and the "
    "editor opens again; a file that is saved without another change is kept, and named.",
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
    borrowing_limits: BorrowOption = None,
    lending_limits: LendOption = None,
    parent: ParentOption = "",
    namespaces: NamespacesOption = None,
    namespace_selector: SelectorOption = "",
    default: DefaultOption = None,
    priority_classes: ClassOption = None,
    hold_at: HoldAtOption = None,
    dry_run: DryRunOption = DryRun.NONE,
    output: ObjectFormatOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Change a queue in an editor, or by options."""
    options = SpecOptions(
        quotas=quotas or (),
        borrowing_limits=borrowing_limits or (),
        lending_limits=lending_limits or (),
        parent=parent,
        namespaces=namespaces or (),
        namespace_selector=namespace_selector,
        is_default=default,
        priority_classes=priority_classes or (),
        hold_at=hold_at,
    )

    async def read(cluster: Cluster) -> Json:
        return await _read(cluster, name)

    def write(queue: Json) -> Json:
        async def replace(cluster: Cluster) -> Json:
            return await _replace(cluster, queue, dry_run)

        if dry_run is DryRun.CLIENT:
            return queue
        return cluster_options.query(replace, kubeconfig=kubeconfig, context=context)

    before = cluster_options.query(read, kubeconfig=kubeconfig, context=context)
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

    Raises EditCancelledError if the user leaves a mistake as it is; the file is kept then, and the error names it.
    """
    original = object_writes.as_yaml(before)
    text, trouble = original, ""
    with tempfile.NamedTemporaryFile("w", prefix="muster-edit-", suffix=".yaml", delete=False, encoding="utf-8") as file:
        path = Path(file.name)
    kept = False
    try:
        while True:
            path.write_text(_comment((*HEADER, *trouble.splitlines())) + text, encoding="utf-8")
            edit_file(path)
            edited = _without_comments(path.read_text(encoding="utf-8"))
            if not edited.strip() or edited == original:
                return None
            if trouble and edited == text:
                kept = True
                raise EditCancelledError(f"{trouble}; nothing was changed, and your text is kept in {path}")
            text = edited
            try:
                return write(_read_edited(text, before))
            except (FixError, ConflictError) as error:
                trouble = str(error)
            except RetryError as error:
                kept = True
                raise type(error)(f"{error}; your text is kept in {path}") from error
    finally:
        if not kept:
            path.unlink(missing_ok=True)
