"""Users and permissions, as values of TokenReview and SubjectAccessReview."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from admission.api.values import names


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """A person or a program, as the API server knows it (authentication.k8s.io/v1, UserInfo).

    extra: as sorted pairs, so that a visitor can be a key of a mapping.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def extras(self) -> Mapping[str, tuple[str, ...]]:
        return dict(self.extra)


class Question(NamedTuple):
    """A permission to check, in RBAC's terms. namespace and name: empty for all of them."""

    verb: str
    resource: str
    group: str = names.GROUP
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        words = [self.verb, f"{self.resource}.{self.group}" if self.group else self.resource, self.name]
        return " ".join(filter(None, [*words, f"in namespace {self.namespace}" if self.namespace else ""]))
