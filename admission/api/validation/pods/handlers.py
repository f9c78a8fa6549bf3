"""Validation of what is done with a running container: its probes, and the handlers of its start and end.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), validateProbe and
validateLifecycle, after the defaults of `pkg/apis/core/v1`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from admission.api.validation import fields
from admission.api.values import formats
from admission.api.values.decoding import Reader

LARGEST_PORT = 65535
GRACE = 30
"""The default of a pod's terminationGracePeriodSeconds."""
SECONDS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
HEADER = re.compile(r"[-A-Za-z0-9]+")


def validate(container: Reader, grace: int) -> None:
    """Judge the probes and handlers of a container that has them. grace: the pod's terminationGracePeriodSeconds."""
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if field in container:
            _probe(container.child(field), is_readiness=field == "readinessProbe")
    lifecycle = container.child("lifecycle")
    for field in ("postStart", "preStop"):
        if field in lifecycle:
            _handler(lifecycle.child(field), (*_ACTIONS, "sleep"))
            _sleep(lifecycle.child(field), grace)


def _probe(probe: Reader, *, is_readiness: bool) -> None:
    _handler(probe, (*_ACTIONS, "grpc"))
    if "grpc" in probe:
        _port(probe.child("grpc"))
        if "mode" in probe.child("grpc"):
            fields.supported(probe.child("grpc"), "mode", ("Plaintext", "TLS"))
    fields.not_negative(probe, *SECONDS)
    if "terminationGracePeriodSeconds" in probe:
        if is_readiness:
            fields.invalid(probe, "terminationGracePeriodSeconds", "must not be set for readinessProbes")
        elif probe.integer("terminationGracePeriodSeconds", 1) <= 0:
            fields.invalid(probe, "terminationGracePeriodSeconds", "must be greater than 0")
    if not is_readiness and probe.integer("successThreshold") > 1:
        fields.invalid(probe, "successThreshold", "must be 1")


def _handler(handler: Reader, known: tuple[str, ...]) -> None:
    found = [name for name in known if name in handler]
    if not found:
        handler.problem("", "Required value: must specify a handler type")
    for name in found[1:]:
        handler.problem(name, "Forbidden: may not specify more than 1 handler type")
    if found and found[0] in _ACTIONS:
        _ACTIONS[found[0]](handler.child(found[0]))


def _sleep(handler: Reader, grace: int) -> None:
    sleep = handler.child("sleep")
    if "sleep" in handler and not 0 <= sleep.integer("seconds") <= grace:
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        handler.problem("sleep", f"Invalid value: {sleep.raw('seconds')!r}: {why}")


def _exec(action: Reader) -> None:
    if not action.texts("command") and not action.raw("command"):
        action.problem("command", "Required value")


def _http(action: Reader) -> None:
    _port(action)
    if action.text("scheme"):
        fields.supported(action, "scheme", ("HTTP", "HTTPS"))
    for header in action.children("httpHeaders"):
        if HEADER.fullmatch(header.text("name")) is None:
            fields.invalid(header, "name", "a valid HTTP header must consist of alphanumeric characters or '-'")


def _port(action: Reader) -> None:
    port: Any = action.raw("port")
    if isinstance(port, str):
        if message := formats.port_name(port):
            action.problem("port", f"Invalid value: {message}")
    elif not isinstance(port, bool) and isinstance(port or 0, int) and not 1 <= (port or 0) <= LARGEST_PORT:
        action.problem("port", f"Invalid value: {port or 0}: must be between 1 and {LARGEST_PORT}, inclusive")


_ACTIONS: Mapping[str, Callable[[Reader], None]] = {"exec": _exec, "httpGet": _http, "tcpSocket": _port}
"""What probes and handlers may both do."""
