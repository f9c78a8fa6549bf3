"""What a kubelet makes of a pod of deploy/manifests, in Podman's words.

Each field of a security context and each kind of volume has its word here; one that has none fails, so that the chart
cannot ask for something that was never tried.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
NAMESPACE = "muster-system"
MEBIBYTE = "Mi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a pod is given by its cluster.

    files: folders of this machine by what they stand for, the name of a ConfigMap or `account`. secrets: values by the
    name of a Secret. changed: variables that differ from the manifest, as ports that are taken on a machine's network.
    """

    files: Mapping[str, Path]
    secrets: Mapping[str, str]
    changed: Mapping[str, str]


def deployment(name: str) -> Any:
    """Return a Deployment of the manifests."""
    return _document("Deployment", name)


def configured(name: str) -> dict[str, str]:
    """Return the files of a ConfigMap of the manifests."""
    found: dict[str, str] = _document("ConfigMap", name)["data"]
    return found


def _document(kind: str, name: str) -> Any:
    documents = (one for path in MANIFESTS.glob("*.yaml") for one in yaml.safe_load_all(path.read_text()))
    [found] = [one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def flags(pod: Any, given: Given) -> list[str]:
    """Return the options of `podman run` for a pod's only container, on this machine's network."""
    [container] = pod["containers"]
    variables = {**{one["name"]: _value(one, given) for one in container["env"]}, **given.changed}
    return [
        "--network=host",
        *confined(pod),
        *(f"--env={name}={value}" for name, value in variables.items()),
        *(f"--volume={given.files[name]}:{place}:ro" for name, place in _configurations(pod)),
        f"--volume={given.files['account']}:{ACCOUNT}:ro",
    ]


def confined(pod: Any) -> list[str]:
    """Return the options that keep a pod's only container from doing anything but its work, and its own /tmp."""
    [container] = pod["containers"]
    security = {**pod["securityContext"], **container["securityContext"]}
    most = container["resources"]["limits"]["memory"]
    assert most.endswith("Gi")
    return [*_secured(security), *_memory(pod), f"--memory={most.removesuffix('Gi')}g"]


def words(pod: Any) -> list[str]:
    """Return what the container's entry point is given."""
    [container] = pod["containers"]
    assert "command" not in container, "the image has an entry point"
    return list(container["args"])


def _secured(security: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a security context; the group of files has a meaning for volumes of claims alone."""
    asked = {name: value for name, value in security.items() if name != "fsGroup"}
    yield f"--user={asked.pop('runAsUser')}:{asked.pop('runAsGroup')}"
    for name, value in asked.items():
        match name, value:
            case "runAsNonRoot", True:
                assert security["runAsUser"] > 0
            case "seccompProfile", {"type": "RuntimeDefault"}:
                pass  # Podman's default, too
            case "allowPrivilegeEscalation", False:
                yield "--security-opt=no-new-privileges"
            case "readOnlyRootFilesystem", True:
                yield from ("--read-only", "--read-only-tmpfs=false")
            case "capabilities", {"drop": ["ALL"], **others} if not others:
                yield "--cap-drop=all"
            case _:
                raise AssertionError(f"securityContext.{name}: {value} has no word here")


def _value(variable: Any, given: Given) -> str:
    if "valueFrom" in variable:
        return given.secrets[variable["valueFrom"]["secretKeyRef"]["name"]]
    return str(variable["value"])


def _memory(pod: Any) -> Iterator[str]:
    """Yield the folders in memory, which a kubelet lets anybody in the container write to."""
    for place, volume in _mounts(pod):
        match volume:
            case {"emptyDir": {"medium": "Memory", "sizeLimit": size}}:
                assert size.endswith(MEBIBYTE)
                megabytes = size.removesuffix(MEBIBYTE)
                yield f"--mount=type=tmpfs,destination={place},tmpfs-size={megabytes}m,tmpfs-mode=0777"
            case {"configMap": _}:
                pass
            case _:
                raise AssertionError(f"the volume {volume} has no word here")


def _configurations(pod: Any) -> Iterator[tuple[str, str]]:
    """Yield the names of ConfigMaps, and where they are mounted."""
    for place, volume in _mounts(pod):
        if "configMap" in volume:
            yield volume["configMap"]["name"], place


def _mounts(pod: Any) -> Iterator[tuple[str, Any]]:
    [container] = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        yield mount["mountPath"], volumes[mount["name"]]
