"""Who asks to see something, and what they ask for: values of TokenReview and SubjectAccessReview."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from admission.api.values import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A person or a program, as the API server knows it (authentication.k8s.io/v1, UserInfo).

    extra: as pairs, sorted, so that a visitor can be the key of a mapping.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def extras(self) -> Mapping[str, tuple[str, ...]]:
        return dict(self.extra)


class Question(NamedTuple):
    """What somebody wants to do, in the words of RBAC. namespace and name: empty where it is about all of them."""

    verb: str
    resource: str
    group: str = names.GROUP
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        words = [self.verb, f"{self.resource}.{self.group}" if self.group else self.resource, self.name]
        return " ".join(filter(None, [*words, f"in namespace {self.namespace}" if self.namespace else ""]))
