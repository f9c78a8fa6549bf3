"""A webhook of somebody else's, which the API server calls after Muster's and which changes pods."""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from admission.webhook.tls import certificate as certificates
from tests.controlplane.namespaces import Namespace

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextmanager
def patching(namespace: Namespace, patch: Sequence[dict[str, Any]]) -> Iterator[list[list[str]]]:
    """Apply a JSON patch to every new pod of a namespace; yield a list of the gates with which each pod came.

    The API server calls webhooks in the order of the names of their configurations.
    """
    found: list[list[str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            found.append([gate["name"] for gate in request["object"]["spec"].get("schedulingGates", [])])
            changes = base64.b64encode(json.dumps(patch).encode()).decode()
            response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": changes}
            body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    made = certificates.self_made(["127.0.0.1"], now=datetime.now(UTC))
    context = certificates.server_context()
    certificates.load(context, made)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        path = f"{CONFIGURATIONS}/zz-{namespace.name}"
        namespace.client.apply(path, _configuration(namespace.name, server.server_port, made.authority))
        try:
            yield found
        finally:
            namespace.client.delete(path)
            server.shutdown()
            thread.join()


def _configuration(namespace: str, port: int, authority: bytes) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    webhook = {
        "name": "sidecars.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(authority).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": f"zz-{namespace}"},
        "webhooks": [webhook],
    }
