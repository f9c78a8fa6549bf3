"""The rights that Muster runs with: those that the chart gives its ServiceAccounts for the settings, and nobody else.

A process has a token of its role's account, as its pod would.
"""

import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import ControlPlane, building, users
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually

CHART = Path(__file__).parents[2] / "deploy" / "chart"
NAMESPACE = "muster-system"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
ACCOUNT = f"{ACCOUNTS}/muster"
"""The controller's, or that of one process that does everything."""

WEBHOOK = f"{ACCOUNTS}/muster-webhook"
USER, WEBHOOK_USER = (f"system:serviceaccount:{NAMESPACE}:{name}" for name in ("muster", "muster-webhook"))
SECONDS_VALID = 24 * 3600
"""As long as the longest run of these tests, and more."""


def tends(settings: Mapping[str, Any]) -> bool:
    """Whether Muster keeps others off devices, for which the chart gives it more rights."""
    return bool(settings.get("fence") or settings.get("coverage"))


def grant(control_plane: ControlPlane, *, tends: bool = False, but: Collection[str] = ()) -> None:
    """Make the accounts with what the chart gives them, and with no more than that any longer, once it is in force.

    tends: whether it keeps others off devices. but: resources that are left out.
    """
    client = control_plane.client()
    changed = set()
    for document in _rendered(tends=tends):
        rules = [_without(rule, but) for rule in document.get("rules", ())]
        narrowed = {"rules": [rule for rule in rules if rule["resources"]]} if rules else {}
        before = client.find(_path(document)) or {"metadata": {}}
        after = client.apply(_path(document), {**document, **narrowed})
        if after["metadata"]["resourceVersion"] != before["metadata"].get("resourceVersion"):
            changed.add(_path(document))
    left = [review for path, review in _reviews(_rendered(tends=tends)) if path in changed]

    def in_force() -> bool:
        while left and _is_allowed(client, left[-1]) is (_resource(left[-1]) not in but):
            left.pop()
        return not left

    eventually(in_force, what=lambda: f"the rights of Muster are in force: {left[-1:]}")


def _reviews(documents: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield what these roles let the accounts do, as questions to the API server, each with the path of what says so.

    It knows roles and their bindings from watches of its own.
    """
    roles = {(one["kind"], one["metadata"]["name"]): one for one in documents if "rules" in one}
    for binding in (one for one in documents if "roleRef" in one):
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        asked = [_review(binding, rule) for rule in role["rules"]]
        yield _path(binding), asked[-1]
        yield from ((_path(role), review) for review in asked)


def _review(binding: Manifest, rule: Manifest) -> Manifest:
    """Ask for the last that a rule of a role allows to whom a binding gives it."""
    (subject,) = binding["subjects"]
    resource, _, part = rule["resources"][-1].partition("/")
    attributes = {
        "namespace": binding["metadata"].get("namespace", ""),
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": part,
        "verb": rule["verbs"][-1],
        "name": rule.get("resourceNames", [""])[0],
    }
    return {
        "user": f"system:serviceaccount:{subject['namespace']}:{subject['name']}",
        "resourceAttributes": attributes,
    }


def _resource(review: Manifest) -> str:
    attributes = review["resourceAttributes"]
    return "/".join(filter(None, (attributes["resource"], attributes["subresource"])))


def _is_allowed(client: Client, review: Manifest) -> bool:
    answer = client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": review})
    return bool(answer["status"]["allowed"])


def _without(rule: Manifest, but: Collection[str]) -> Manifest:
    return {**rule, "resources": [resource for resource in rule["resources"] if resource not in but]}


def _path(document: Manifest) -> str:
    meta, kind = document["metadata"], f"{document['kind'].lower()}s"
    root = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
    return "/".join((root, *(("namespaces", meta["namespace"]) if "namespace" in meta else ()), kind, meta["name"]))


@cache
def _rendered(*, tends: bool) -> Sequence[Manifest]:
    """Return what the chart gives, in an order in which it can be made."""
    values = ("image.repository=none", "namespace.create=true", f"settings.coverage={str(tends).lower()}")
    shown = ("--namespace", NAMESPACE, "--show-only", "templates/rbac.yaml")
    return list(yaml.safe_load_all(helm("template", "muster", str(CHART), *shown, "--set", ",".join(values))))


def helm(*words: str) -> str:
    """Run helm, and return what it prints."""
    done = subprocess.run([str(building.helm()), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def account_of(roles: Collection[str]) -> str:
    """Return the account of a process with these roles."""
    return WEBHOOK if set(roles) == {"webhook"} else ACCOUNT


def kubeconfig(control_plane: ControlPlane, path: Path, *, server: str = "", account: str = ACCOUNT) -> Path:
    """Write a kubeconfig with a token of the account, and return its path. server: another way to the API server."""
    client = control_plane.client()
    client = replace(client, token=token(control_plane, account), server=server or client.server)
    text = users.kubeconfig(client=client, user="muster", authority=control_plane.authority)
    return users.write_secret(path, text)


def token(control_plane: ControlPlane, account: str) -> str:
    """Draw a token of a ServiceAccount. account: its path."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": SECONDS_VALID},
    }
    return str(control_plane.client().create(f"{account}/token", request)["status"]["token"])
