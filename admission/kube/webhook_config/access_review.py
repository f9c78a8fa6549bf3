"""Authentication and authorization of users by the API server: TokenReview and SubjectAccessReview.

It needs the permissions of the ClusterRole `system:auth-delegator`: create on both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from admission.api.kubernetes.access_review import Question, UserInfo
from admission.kube.client.connection import Connection, RetryPolicy

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

FEW_RETRIES = RetryPolicy(tries=2, timeout=5.0, base=0.1, longest=0.5)
"""Few and short tries, since a person waits for the answer."""


class AccessReviewer:
    """Reviews by one API server. audiences: a token must have one of them; if empty, that of the API server."""

    def __init__(self, connection: Connection, audiences: Sequence[str] = ()) -> None:
        self._connection = connection
        self._audiences = tuple(audiences)

    async def authenticate(self, token: str) -> UserInfo | None:
        """Return the user of a token; None when the API server does not accept it.

        Raises ClusterUnavailableError, and ForbiddenError where this process may not create reviews.
        """
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await self._connection.post(TOKENS, body, retry_policy=FEW_RETRIES)
        status = _mapping(answer.get("status"))
        if status.get("authenticated") is not True:
            return None
        # An authenticator that does not know audiences omits them; its answer is valid for the API server only.
        if self._audiences and not set(self._audiences) & set(status.get("audiences") or ()):
            return None
        return _user_info(_mapping(status.get("user")))

    async def allows(self, user: UserInfo, question: Question) -> bool:
        """Return whether a visitor has a permission. Raises as `authenticate`."""
        attributes = {
            "verb": question.verb,
            "group": question.group,
            "resource": question.resource,
            "namespace": question.namespace,
            "name": question.name,
        }
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._connection.post(ACCESS, body, retry_policy=FEW_RETRIES)
        return _mapping(answer.get("status")).get("allowed") is True


def _user_info(user: Mapping[str, Any]) -> UserInfo | None:
    name = user.get("username")
    if not isinstance(name, str) or not name:
        return None
    return UserInfo(
        name=name,
        uid=str(user.get("uid") or ""),
        groups=tuple(map(str, user.get("groups") or ())),
        extra=tuple(
            (str(key), tuple(map(str, values or ()))) for key, values in sorted(_mapping(user.get("extra")).items())
        ),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
