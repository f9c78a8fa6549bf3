"""The check of Muster's rights: the API server reviews each right of the shipped roles.

Muster's own account asks for itself (SelfSubjectAccessReview). Any other user asks about Muster's account
(SubjectAccessReview), since an administrator's own rights prove nothing.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from admission import resources
from admission.cli.doctor import findings
from admission.cli.doctor.findings import Finding
from admission.kube.client.connection import Connection
from admission.settings import Settings

CHECK = "rights"
MOST_NAMED = 5

_API = "authorization.k8s.io/v1"
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One call that RBAC has to allow. namespace: "" for the whole cluster."""

    group: str
    resource: str
    verb: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        named = f" {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{named}{where}"

    @property
    def attributes(self) -> dict[str, str]:
        """Return the right as `resourceAttributes`."""
        resource, _, subresource = self.resource.partition("/")
        fields = {
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "name": self.name,
            "namespace": self.namespace,
        }
        return {key: value for key, value in fields.items() if value}


async def check_rights(connection: Connection, settings: Settings, account: str) -> list[Finding]:
    """Review every right. account: Muster's user; "" for the chart's, in the lease's namespace."""
    current_user = await connection.who_am_i()
    user = account or (
        current_user if current_user.startswith(_ACCOUNT) else f"{_ACCOUNT}{settings.lease.namespace}:muster"
    )
    required = sorted(set(rights(settings)))
    allowed = await asyncio.gather(
        *(_is_allowed(connection, right, user, current_user=current_user) for right in required)
    )
    missing = [right for right, is_allowed in zip(required, allowed, strict=True) if not is_allowed]
    if not missing:
        return [findings.passed(CHECK, f"{user} may do all {len(required)} things that Muster does")]
    named = ", ".join(map(str, missing[:MOST_NAMED]))
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    fix = "apply the roles of the chart again (deploy/manifests/rbac.yaml, `muster install --print`)"
    return [findings.failed(CHECK, f"{user} may not {named}{more}", f"{fix}, or name Muster's user in --account")]


def rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights of the shipped roles that these settings require."""
    text = (resources.manifests() / "rbac.yaml").read_text()
    for document in yaml.safe_load_all(text):
        if document["kind"] in ("ClusterRole", "Role"):
            namespace = settings.lease.namespace if document["kind"] == "Role" else ""
            for rule in document["rules"]:
                yield from _rights_of_rule(rule, namespace, settings)


def _rights_of_rule(rule: Mapping[str, Any], namespace: str, settings: Settings) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    right = Right(group=group, resource=resource, verb=verb, name=name, namespace=namespace)
                    if _is_needed(right, settings):
                        yield right


def _is_needed(right: Right, settings: Settings) -> bool:
    """Whether Muster makes the call with these settings; reads do not depend on them."""
    if right.group == "apiextensions.k8s.io":
        return settings.install_crds
    if right.resource.endswith("webhookconfigurations"):
        return settings.coverage if right.verb in ("list", "watch") else settings.webhook.register
    if right.resource == "configmaps" or right.name == settings.heads.secret:
        return settings.heads.enabled
    # Muster deletes leftovers of earlier settings, so those rights are always needed.
    fences = (right.resource.startswith("validatingadmissionpolic") and right.verb not in ("list", "delete")) or (
        right.resource == "devicetaintrules" and right.verb in ("create", "update")
    )
    proofs = right.resource == "resourceclaims" and bool(right.namespace)
    return bool(settings.fence) or settings.coverage if fences or proofs else True


async def _is_allowed(connection: Connection, right: Right, account: str, *, current_user: str) -> bool:
    spec: dict[str, Any] = {"resourceAttributes": right.attributes}
    kind = "SelfSubjectAccessReview"
    if account != current_user:
        kind = "SubjectAccessReview"
        spec |= {"user": account, "groups": _groups(account)}
    path = f"/apis/{_API}/{kind.lower()}s"
    answer = await connection.post(path, {"apiVersion": _API, "kind": kind, "spec": spec})
    return bool((answer.get("status") or {}).get("allowed"))


def _groups(account: str) -> list[str]:
    """Return the groups that the API server itself adds to an account."""
    if not account.startswith(_ACCOUNT):
        return ["system:authenticated"]
    namespace = account.removeprefix(_ACCOUNT).partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
