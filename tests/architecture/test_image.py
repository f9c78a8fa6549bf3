"""deploy/Dockerfile makes a small image that anybody may run: here it is read, and built in tests/image."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORED = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()


def instructions() -> list[tuple[str, str]]:
    """Return the instructions and their words, those over several lines as one."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines()]


def stages() -> list[list[tuple[str, str]]]:
    """Return what each `FROM` begins."""
    found: list[list[tuple[str, str]]] = []
    for name, words in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, words))
    return found


def said(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [words for instruction, words in stage if instruction == name]


def test_installed_packages_are_those_of_the_lock_file() -> None:
    build, _ = stages()
    commands = [command for words in said(build, "RUN") for command in words.split(" && ")]
    [tools, libraries, builder, wheel, installed, *_] = commands

    assert libraries.startswith("uv sync --frozen --no-dev --extra ")
    assert builder == "UV_PROJECT_ENVIRONMENT=/opt/build uv sync --frozen --only-group build"
    assert "--no-build-isolation --python /opt/build" in wheel, "nothing else builds it"
    assert "--no-deps --no-index" in installed, "nothing else comes with it"
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert known["dependency-groups"]["build"] == known["build-system"]["requires"]
    [version] = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--require-hashes --only-binary=:all: -r /tmp/build-tools.txt" in tools
    assert "deploy/build-tools.txt /tmp/build-tools.txt" in said(build, "COPY")
    pinned = (ROOT / "deploy" / "build-tools.txt").read_text().replace("\\\n", "").splitlines()
    [(requirement, *hashes)] = [line.split() for line in pinned if not line.startswith("#")]
    assert requirement == f"uv=={version}", "as the Makefile has it"
    assert hashes
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


def test_the_image_has_the_installation_and_nothing_of_its_making() -> None:
    _, image = stages()

    assert said(image, "COPY") == ["--from=build /opt/muster /opt/muster"]
    [compiled] = said(image, "RUN")
    assert compiled.startswith("python3 -B -m compileall -q --invalidation-mode unchecked-hash")
    assert said(image, "ADD") == []


def test_the_image_runs_as_an_unprivileged_user_without_a_shell() -> None:
    _, image = stages()
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())

    [user] = said(image, "USER")
    assert user == "65532:65532"
    ids = values["podSecurityContext"]
    assert f"{ids['runAsUser']}:{ids['runAsGroup']}" == user
    assert json.loads(said(image, "ENTRYPOINT")[0]) == ["muster"]
    assert json.loads(said(image, "CMD")[0]) == ["serve"]
    assert said(image, "HEALTHCHECK") == [], "Kubernetes probes it"


def test_every_base_is_named_once_with_its_whole_version_and_pinned_by_digest() -> None:
    bases = {words.split()[0] for stage in stages() for words in said(stage, "FROM")}

    assert bases == {"${PYTHON}"}
    [base] = [words for name, words in instructions() if name == "ARG" and words.startswith("PYTHON=")]
    assert re.fullmatch(r"PYTHON=python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base)


def test_every_copied_path_exists_and_goes_to_the_builder() -> None:
    build, _ = stages()
    copied = [path for words in said(build, "COPY") for path in words.split()[:-1]]

    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert IGNORED[IGNORED.index("*") :][0] == "*"
    assert {line.removeprefix("!") for line in IGNORED if line.startswith("!")} == set(copied)
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*shipped["packages"], *shipped["force-include"]} <= set(copied)


def test_the_list_of_parts_has_what_the_image_installs_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "muster.cdx.json"
    words = ["make", "--no-print-directory", "sbom", f"SBOM={path}"]
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)

    assert made.returncode == 0, made.stderr
    parts = json.loads(path.read_text())
    assert (parts["bomFormat"], parts["specVersion"]) == ("CycloneDX", "1.5")
    assert parts["metadata"]["component"]["name"] == "muster-admission"
    found = {part["name"]: part for part in parts["components"]}
    assert _installed_with("uvloop", "otel", "dashboard") == set(found)
    assert all(part["purl"] == f"pkg:pypi/{name}@{part['version']}" for name, part in found.items())
    assert all(_hashes(part) for part in found.values())


def _hashes(part: dict[str, list[dict[str, list[dict[str, str]]]]]) -> set[str]:
    return {hashed["content"] for place in part["externalReferences"] for hashed in place["hashes"]}


def _installed_with(*extras_: str) -> set[str]:
    """Return what uv.lock says that Muster needs with these extras, on any platform."""
    packages = {package["name"]: package for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    muster = packages["muster-admission"]
    wanted = [(need["name"], tuple(need.get("extra", ()))) for need in muster["dependencies"]]
    wanted += [(need["name"], ()) for extra in extras_ for need in muster["optional-dependencies"][extra]]
    found = set()
    while wanted:
        name, extras = wanted.pop()
        found.add(name)
        package = packages[name]
        needs = [*package.get("dependencies", ())]
        needs += [need for one in extras for need in package.get("optional-dependencies", {}).get(one, ())]
        wanted += [(n["name"], tuple(n.get("extra", ()))) for n in needs if n["name"] not in found or n.get("extra")]
    return found
