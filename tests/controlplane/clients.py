"""A Kubernetes client of one screen, on the standard library alone.

The tests here look at Kubernetes itself, so they speak its HTTP: what a test sends is what stands in the test. kubectl
is there too, but takes a third of a second to start.
"""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

TRIES = 3
"""Of a request for which a webhook did not answer in time."""


class ApiError(Exception):
    """The API server refused; `code` is the HTTP status, `message` what its Status object says.

    `fields` are those of its causes, as the API server writes them.
    """

    def __init__(self, code: int, message: str, fields: Sequence[str] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.fields = tuple(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One user's requests to one API server; safe to share between threads.

    patient: whether a request is made again for which a webhook did not answer in time, as people do: a machine with
    other guests may stand still for seconds.
    """

    server: str
    token: str
    tls: ssl.SSLContext
    timeout: float = 30.0
    patient: bool = True

    def get(self, path: str) -> Any:
        return self._send("GET", path)

    def find(self, path: str) -> Any | None:
        """Return the object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def items(self, path: str) -> list[Any]:
        listed: list[Any] = self.get(path)["items"]
        return listed

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._send("POST", path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._send("PUT", path, body)

    def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> Any:
        return self._send("PATCH", path, operations, "application/json-patch+json")

    def merge_patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._send("PATCH", path, body, "application/merge-patch+json")

    def apply(self, path: str, body: Mapping[str, Any], *, manager: str = "test") -> Any:
        """Server-side apply, taking over what others own: creates or changes."""
        return self._send("PATCH", f"{path}?fieldManager={manager}&force=true", body, "application/apply-patch+yaml")

    def watch(self, path: str, *, since: str, seconds: int) -> Iterator[Any]:
        """Yield what happens after a version of a collection, until the API server ends the watch after so long."""
        query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={since}"
        with self._open("GET", f"{path}?{query}", None, "application/json") as answer:
            for line in answer:
                yield json.loads(line)

    def delete(self, path: str) -> None:
        """Delete, or be content that it is gone."""
        try:
            self._send("DELETE", path)
        except ApiError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise

    def text(self, path: str) -> str:
        """Return a body that is not JSON, such as /readyz."""
        return self._request("GET", path, None, "application/json").decode()

    def _send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        # Compact, as Go writes: the API server keeps a driver's parameters byte by byte, and takes an allocation whose
        # parameters lose their spaces in a later patch for a changed one.
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for _ in range(TRIES - 1 if self.patient else 0):
            try:
                return json.loads(self._request(method, path, content, content_type))
            except ApiError as error:
                if "failed calling webhook" not in error.message or "context deadline exceeded" not in error.message:
                    raise
        return json.loads(self._request(method, path, content, content_type))

    def _request(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        with self._open(method, path, body, content_type) as answer:
            content: bytes = answer.read()
            return content

    def _open(self, method: str, path: str, body: bytes | None, content_type: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "Content-Type": content_type}
        request = urllib.request.Request(self.server + path, data=body, method=method, headers=headers)  # noqa: S310 our own server
        try:
            return urllib.request.urlopen(request, context=self.tls, timeout=self.timeout)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, *_status(error.read())) from None


def _status(body: bytes) -> tuple[str, list[str]]:
    """Take the sentence and the fields out of a Status object; anything else is shown as it is, cut."""
    text = body.decode(errors="replace")
    try:
        status = json.loads(text)
    except ValueError:
        return text[:500], []
    if not isinstance(status, dict):
        return text[:500], []
    causes = (status.get("details") or {}).get("causes") or []
    return str(status.get("message", text[:500])), [str(cause.get("field", "")) for cause in causes]
