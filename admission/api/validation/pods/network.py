"""Validation of what a pod shares with its node, and of how it finds names.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), validatePodDNSConfig,
validatePodHostName, ValidateHostAliases, validateHostUsers and validateShareProcessNamespace.
"""

import ipaddress
import re

from admission.api.validation import fields
from admission.api.values import formats
from admission.api.values.decoding import Reader

MOST_NAMESERVERS = 3
MOST_SEARCHES = 32
LONGEST_SEARCHES = 2048
LONGEST_HOSTNAME = 64
SEARCH = re.compile(r"[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?(\.[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?)*")


def validate(spec: Reader, containers: list[Reader]) -> None:
    """Judge a pod's names and what it shares. containers: all that it has."""
    _dns(spec)
    _hostname(spec)
    for alias in spec.children("hostAliases"):
        _address(alias, "ip", alias.text("ip"))
        for at, name in enumerate(alias.texts("hostnames")):
            if message := formats.subdomain(name):
                alias.problem(f"hostnames[{at}]", f"Invalid value: {message}")
    if spec.flag("shareProcessNamespace") and spec.flag("hostPID"):
        fields.invalid(spec, "shareProcessNamespace", "ShareProcessNamespace and HostPID cannot both be enabled")
    if not spec.flag("hostUsers", default=True):
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.flag(field):
                spec.problem(field, "Forbidden: when `hostUsers` is false")
        for container in containers:
            if any(container.children("volumeDevices")):
                container.problem("volumeDevices", "Forbidden: when `hostUsers` is false")


def _hostname(spec: Reader) -> None:
    """Judge a name that replaces the one that a pod has by itself."""
    if "hostnameOverride" not in spec:
        return
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.flag(field):
            spec.problem("hostnameOverride", f"Forbidden: may not be specified when {field} is true")
    name = spec.text("hostnameOverride")
    if len(name) > LONGEST_HOSTNAME:
        spec.problem("hostnameOverride", f"Too long: may not be more than {LONGEST_HOSTNAME} bytes")
    if message := formats.subdomain(name):
        spec.problem("hostnameOverride", f"Invalid value: {message}")


def _dns(spec: Reader) -> None:
    config = spec.child("dnsConfig")
    servers, searches = config.texts("nameservers"), config.texts("searches")
    if spec.text("dnsPolicy") == "None":
        if "dnsConfig" not in spec:
            spec.problem("dnsConfig", "Required value: must provide `dnsConfig` when `dnsPolicy` is None")
        elif not servers:
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            config.problem("nameservers", f"Required value: {why}")
    if len(servers) > MOST_NAMESERVERS:
        config.problem("nameservers", f"Invalid value: must not have more than {MOST_NAMESERVERS} nameservers")
    for at, server in enumerate(servers):
        _address(config, f"nameservers[{at}]", server)
    _searches(config, searches)
    for at, option in enumerate(config.children("options")):
        if not option.text("name"):
            config.problem(f"options[{at}]", "Required value: must not be empty")


def _searches(config: Reader, searches: tuple[str, ...]) -> None:
    if len(searches) > MOST_SEARCHES:
        config.problem("searches", f"Invalid value: must not have more than {MOST_SEARCHES} search paths")
    if len(" ".join(searches)) > LONGEST_SEARCHES:
        why = f"must not have more than {LONGEST_SEARCHES} characters (including spaces) in the search list"
        config.problem("searches", f"Invalid value: {why}")
    for at, search in enumerate(searches):
        if search != "." and SEARCH.fullmatch(search.removesuffix(".")) is None:
            config.problem(f"searches[{at}]", f"Invalid value: {search!r}: must be a DNS subdomain, '_' included")


def _address(reader: Reader, field: str, text: str) -> None:
    """Judge an address. Numbers with zeros in front are taken, as by Go before 1.17."""
    plain = ".".join(part.lstrip("0") or part[:1] for part in text.split(".")) if ":" not in text else text
    try:
        ipaddress.ip_address(plain)
    except ValueError:
        reader.problem(field, f"Invalid value: {text!r}: must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
