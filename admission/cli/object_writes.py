"""Objects that commands write for their user: what is wrong with them, said before they are sent; dry runs; output."""

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from admission.api.kubernetes import meta
from admission.api.values import durations
from admission.api.values.decoding import Json
from admission.cli import terminal
from admission.cli.cluster_options import Cluster
from admission.errors import ConflictError, FixError, ForbiddenError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import paths
from admission.kube.client.connection import Request

KINDS = {kind.name: kind for kind in (watched_resources.QUEUES, watched_resources.JOBS, watched_resources.TEMPLATES)}
"""The kinds that commands write."""

CONTEXT = (watched_resources.METERS, watched_resources.POLICIES, watched_resources.CLASSES)
"""What objects are judged by, besides queues and namespaces."""


class DryRun(StrEnum):
    """Whether objects are only tried, as with kubectl."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


class ObjectFormat(StrEnum):
    """How written objects are printed."""

    YAML = "yaml"
    JSON = "json"
    NAME = "name"


DryRunOption = Annotated[
    DryRun,
    typer.Option(
        "--dry-run",
        help="client: only print it, which needs no cluster; server: have the API server and webhooks judge it, and "
        "store nothing.",
    ),
]
ObjectFormatOption = Annotated[
    ObjectFormat | None,
    typer.Option("--format", "-o", help="Print the objects as YAML or JSON, or only their names.", show_default=False),
]


def refuse_invalid(bodies: Sequence[Json], *, namespace: str = "default") -> None:
    """Raise FixError with what the API server would refuse of objects by themselves; no cluster is asked."""
    from admission.simulation import expand  # noqa: PLC0415 - it takes a while to import

    found = expand.expand(bodies, namespace=namespace)
    wrong = [f"{_named(bodies[index])}: {one}" for index, error in found.problems for one in error.problems]
    if wrong:
        raise FixError("; ".join(wrong))


async def check(cluster: Cluster, bodies: Sequence[Json], *, namespace: str = "default") -> list[str]:
    """Return warnings about new or changed objects. Raises FixError with all that would be refused.

    It is what `muster lint` says, by the cluster's queues, meters, classes and policies. Who may not read queues is
    told by the webhook alone.
    """
    from admission.dra import compatibility  # noqa: PLC0415 - compiling takes a while to import, a dry run needs none
    from admission.simulation import lint  # noqa: PLC0415 - the same

    try:
        known = [*await _listed(cluster, watched_resources.QUEUES), *await _namespaces(cluster, namespace)]
    except ForbiddenError as error:
        return [f"{error}; so only the webhook judges it"]
    for kind in CONTEXT:
        try:
            known += await _listed(cluster, kind)
        except ForbiddenError:
            continue
    replaced = {_key(body) for body in bodies}
    others = [body for body in known if _key(body) not in replaced]
    version = ".".join(map(str, await cluster.connection.version()))
    found = await lint.lint(
        [*bodies, *others], namespace=namespace, profile=compatibility.of_version(version) or compatibility.NEWEST
    )
    own = [one for one in found.remarks if one.index < len(bodies)]
    wrong = [one for one in own if one.severity is lint.Severity.ERROR or one.code is lint.Code.UNKNOWN_CLASS]
    if wrong:
        raise FixError("; ".join(f"{_named(bodies[one.index])}: {one.field}: {one.message}" for one in wrong))
    return [f"{_named(bodies[one.index])}: {one.field}: {one.message}" for one in own]


async def create(cluster: Cluster, body: Json, dry_run: DryRun) -> Json:
    """Create an object, or have that tried. Raises FixError if there is one of its name."""
    parameters: dict[str, Any] = {"dryRun": "All"} if dry_run is DryRun.SERVER else {}
    try:
        return await cluster.connection.send(
            Request(method="POST", path=collection(body), params=parameters, body=body)
        )
    except ConflictError as error:
        raise FixError(f"there is a {_named(body)} already; nothing was changed") from error
    except GoneError as error:
        raise FixError(f"{_named(body)} cannot be created: {error}") from error


def collection(body: Json) -> str:
    """Return the path at which objects of the kind and namespace are created."""
    kind, namespace = KINDS[body["kind"]], body["metadata"].get("namespace")
    root, _, plural = kind.path.rpartition("/")
    return paths.within(root, namespace, plural) if namespace else kind.path


def show(bodies: Iterable[Json], output: ObjectFormat | None, dry_run: DryRun, done: str = "created") -> None:
    """Print objects in a format; without one a line for each, as kubectl does."""
    bodies = [*bodies]
    match output:
        case ObjectFormat.YAML:
            sys.stdout.write("---\n".join(map(as_yaml, bodies)))
        case ObjectFormat.JSON:
            terminal.as_json(bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": bodies})
        case ObjectFormat.NAME:
            sys.stdout.writelines(f"{_resource(body)}\n" for body in bodies)
        case None:
            tried = "" if dry_run is DryRun.NONE else f" ({dry_run} dry run)"
            sys.stdout.writelines(f"{_resource(body)} {done}{tried}\n" for body in bodies)


def as_yaml(body: Json) -> str:
    """Return an object as a YAML document, with its fields in their order."""
    import yaml  # noqa: PLC0415 - only this format needs it

    text: str = yaml.safe_dump(body, sort_keys=False, width=120, allow_unicode=True)
    return text


def amounts(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """Return the values of an option of the form NAME=VALUE by name. Raises FixError for any other text."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise FixError(f"{option}: {text!r} is not of the form {example}")
        if name in found:
            raise FixError(f"{option}: {name} is given twice")
        found[name] = value
    return found


def duration(option: str, text: str) -> str:
    """Return the value of an option that is a duration, as it was written. Raises FixError for any other text."""
    try:
        durations.parse_positive(text)
    except ValueError as error:
        raise FixError(f"{option}: {error}") from error
    return text


async def _listed(cluster: Cluster, kind: Kind) -> list[Json]:
    return [_typed(kind, item) for item in await cluster.list_objects(kind)]


async def _namespaces(cluster: Cluster, namespace: str) -> list[Json]:
    """Return all namespaces, or at least the one that matters, as far as the user may read them."""
    try:
        return await _listed(cluster, watched_resources.NAMESPACES)
    except ForbiddenError:
        found = await cluster.get_object(watched_resources.NAMESPACES, namespace)
        return [_typed(watched_resources.NAMESPACES, found)] if found is not None else []


def _typed(kind: Kind, item: Json) -> Json:
    """Return an item of a list with the type that lists leave out."""
    return {"apiVersion": "/".join(filter(None, (kind.group, kind.version))), "kind": kind.name, **item}


def _key(body: Json) -> tuple[str, str]:
    return str(body["kind"]), meta.name_in(body)


def _named(body: Json) -> str:
    return " ".join(_key(body))


def _resource(body: Json) -> str:
    group = str(body["apiVersion"]).rpartition("/")[0]
    name = body["metadata"]["name"]
    return f"{str(body['kind']).lower()}{'.' if group else ''}{group}/{name}"
