"""The check of Muster's rights: the API server reviews each right of the shipped roles.

An account of Muster's asks for itself (SelfSubjectAccessReview). Any other user asks about Muster's accounts
(SubjectAccessReview), since an administrator's own rights prove nothing.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from admission import resources
from admission.cli.doctor import findings
from admission.cli.doctor.findings import Finding
from admission.errors import ForbiddenError, GoneError
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import match_conditions
from admission.settings import Settings

CHECK = "rights"
MOST_NAMED = 5

_API = "authorization.k8s.io/v1"
_REGISTERED = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster"
_ACCOUNT = "system:serviceaccount:"
_ROLES = {"controller": "muster", "webhook": "muster-webhook", "dashboard": "muster-dashboard"}
"""The shipped account of each role, and the name of its ClusterRole and Role."""
_READS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One call that RBAC has to allow. namespace: "" for the whole cluster."""

    group: str
    resource: str
    verb: str
    name: str = ""
    namespace: str = ""

    @property
    def writes(self) -> bool:
        """Whether the call changes the cluster."""
        return self.verb not in _READS and not self.resource.endswith("reviews")

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
    """Review every right of the roles in the settings, and what a webhook that runs apart may do beyond them.

    account: the user that has all of them; "" for the account that asks, else for that of the running controller, else
    for the chart's of each role.
    """
    current_user = await connection.who_am_i()
    running = "" if account or settings.controller.user else await _running_controller(connection)
    found = []
    for user, roles in _accounts(settings, account, current_user, running).items():
        reviewer = _Reviewer(connection, user, current_user)
        required = sorted({right for role in roles for right in rights(settings, role)})
        found.append(_verdict(user, required, await reviewer.refused(required)))
        if roles == ("webhook",):
            beyond = sorted({right for right in rights(settings, "controller") if right.writes} - set(required))
            refused = await reviewer.refused(beyond)
            found += _excess(user, [right for right in beyond if right not in refused])
    return found


async def _running_controller(connection: Connection) -> str:
    """Return the user of the controller that registered the webhook; "" if that is not known."""
    try:
        found = await connection.get(_REGISTERED)
    except (ForbiddenError, GoneError):
        return ""
    conditions = (said for webhook in found.get("webhooks") or () for said in webhook.get("matchConditions") or ())
    users = (match_conditions.user_of(str(said.get("expression"))) for said in conditions)
    return next(filter(None, users), "")


def _accounts(settings: Settings, account: str, current_user: str, running: str) -> dict[str, tuple[str, ...]]:
    """Return the roles of each user whose rights are reviewed."""
    roles = tuple(sorted(set(settings.roles)))
    if account or current_user.startswith(_ACCOUNT):
        return {account or current_user: roles}
    chart = f"{_ACCOUNT}{settings.lease.namespace}:"
    if settings.controller.user is None:
        return {running or f"{chart}muster": roles}
    own = {"controller": settings.controller.user}
    return {own.get(role, f"{chart}{_ROLES[role]}"): (role,) for role in roles}


def _verdict(user: str, required: Sequence[Right], missing: Sequence[Right]) -> Finding:
    if not missing:
        return findings.passed(CHECK, f"{user} may do all {len(required)} things that Muster does")
    fix = "apply the roles of the chart again (deploy/manifests/rbac.yaml, `muster install --print`)"
    return findings.failed(CHECK, f"{user} may not {_named(missing)}", f"{fix}, or name Muster's user in --account")


def _excess(user: str, allowed: Sequence[Right]) -> Iterator[Finding]:
    if allowed:
        message = f"{user}, of the webhook alone, may {_named(allowed)}, which only a controller does"
        yield findings.warning(CHECK, message, "take the role that grants it from this account")


def _named(some: Sequence[Right]) -> str:
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return f"{', '.join(map(str, some[:MOST_NAMED]))}{more}"


def rights(settings: Settings, role: str) -> Iterator[Right]:
    """Yield the rights of a role's shipped account that these settings require."""
    file = "dashboard.yaml" if role == "dashboard" else "rbac.yaml"
    for document in yaml.safe_load_all((resources.manifests() / file).read_text()):
        if document["kind"] in ("ClusterRole", "Role") and document["metadata"]["name"] == _ROLES[role]:
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
    if right.resource == "secrets":
        return settings.webhook.certificate is None
    if right.resource.endswith("webhookconfigurations") or right.resource.startswith("mutatingadmissionpolic"):
        return settings.coverage if right.verb in ("list", "watch") else settings.webhook.register
    if right.resource == "configmaps" or right.name == settings.heads.secret:
        return settings.heads.enabled
    tends = bool(settings.fence) or settings.coverage
    if right.resource.startswith("validatingadmissionpolic") and right.verb in ("create", "patch"):
        return settings.webhook.register or (tends and right.verb == "create")
    # Muster deletes leftovers of earlier settings, so those rights are always needed.
    fences = (right.resource.startswith("validatingadmissionpolic") and right.verb not in ("list", "delete")) or (
        right.resource == "devicetaintrules" and right.verb in ("create", "update")
    )
    proofs = right.resource == "resourceclaims" and bool(right.namespace)
    return tends if fences or proofs else True


@dataclass(frozen=True, slots=True)
class _Reviewer:
    """Asks the API server about a user's rights."""

    connection: Connection
    user: str
    current_user: str

    async def refused(self, asked: Sequence[Right]) -> list[Right]:
        """Return those that the user does not have."""
        allowed = await asyncio.gather(*map(self._is_allowed, asked))
        return [right for right, is_allowed in zip(asked, allowed, strict=True) if not is_allowed]

    async def _is_allowed(self, right: Right) -> bool:
        spec: dict[str, Any] = {"resourceAttributes": right.attributes}
        kind = "SelfSubjectAccessReview"
        if self.user != self.current_user:
            kind = "SubjectAccessReview"
            spec |= {"user": self.user, "groups": _groups(self.user)}
        path = f"/apis/{_API}/{kind.lower()}s"
        answer = await self.connection.post(path, {"apiVersion": _API, "kind": kind, "spec": spec})
        return bool((answer.get("status") or {}).get("allowed"))


def _groups(account: str) -> list[str]:
    """Return the groups that the API server itself adds to an account."""
    if not account.startswith(_ACCOUNT):
        return ["system:authenticated"]
    namespace = account.removeprefix(_ACCOUNT).partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
