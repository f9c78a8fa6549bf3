"""Claims, templates and classes: good ones, and such as differ from a good one in one thing that is refused."""

from typing import Any

from tests.unit.api.cases import LONG, Case, Json, an_object, with_


def exactly(**changes: Any) -> Json:
    return {"name": "r", "exactly": with_({"deviceClassName": "gpu.example.com"}, changes)}


def first_available(*alternatives: Json, **changes: Any) -> Json:
    return with_({"name": "r", "firstAvailable": list(alternatives)}, changes)


def alternative(name: str = "a", **changes: Any) -> Json:
    return with_({"name": name, "deviceClassName": "gpu.example.com"}, changes)


def claim(*requests: Any, name: str = "good", **devices: Any) -> Json:
    return an_object("ResourceClaim", {"devices": {"requests": list(requests) or [exactly()], **devices}}, name)


def template(claim_: Json) -> Json:
    return an_object("ResourceClaimTemplate", {"spec": claim_["spec"]})


def cel(text: str) -> Json:
    return {"cel": {"expression": text}}


def numbered(count: int) -> list[Json]:
    return [{**exactly(), "name": f"r{number}"} for number in range(count)]


def opaque(**changes: Any) -> Json:
    return {"opaque": with_({"driver": "gpu.example.com", "parameters": {"a": 1}}, changes)}


def tolerating(**toleration: Any) -> Json:
    return claim(exactly(tolerations=[toleration]))


def constrained(**constraint: Any) -> Json:
    return claim(constraints=[constraint])


MATCH = "gpu.example.com/model"
CONSTRAINT = {"matchAttribute": MATCH}
FIRST = "spec.devices.requests[0]"
ASKED = f"{FIRST}.exactly"

CLAIMS = {
    "a name that is no subdomain": Case(claim(name="Good"), "metadata.name"),
    "33 requests": Case(claim(*numbered(33)), "spec.devices.requests"),
    "two requests of one name": Case(claim(exactly(), exactly()), "spec.devices.requests[1].name"),
    "a request without a name": Case(claim({"exactly": exactly()["exactly"]}), f"{FIRST}.name"),
    "a request's name that is no label": Case(claim({**exactly(), "name": "a.b"}), f"{FIRST}.name"),
    "a request's name that is too long": Case(claim({**exactly(), "name": LONG}), f"{FIRST}.name"),
    "a request of nothing": Case(claim({"name": "r"}), FIRST),
    "a request of both kinds": Case(claim({**exactly(), **first_available(alternative())}), FIRST),
    "no class": Case(claim(exactly(deviceClassName=None)), f"{ASKED}.deviceClassName"),
    "a class's name that is none": Case(claim(exactly(deviceClassName="a_b")), f"{ASKED}.deviceClassName"),
    "an unknown mode": Case(claim(exactly(allocationMode="Some")), f"{ASKED}.allocationMode"),
    "a negative count": Case(claim(exactly(count=-1)), f"{ASKED}.count"),
    "a count beyond 64 bits": Case(claim(exactly(count=2**63)), f"{ASKED}.count"),
    "a fractional count": Case(claim(exactly(count=1.5)), f"{ASKED}.count"),
    "a count as text": Case(claim(exactly(count="1")), f"{ASKED}.count"),
    "All with a count": Case(claim(exactly(allocationMode="All", count=1)), f"{ASKED}.count"),
    "All with a negative count": Case(claim(exactly(allocationMode="All", count=-1)), f"{ASKED}.count"),
    "33 selectors": Case(claim(exactly(selectors=[cel("true")] * 33)), f"{ASKED}.selectors"),
    "a selector without CEL": Case(claim(exactly(selectors=[{}])), f"{ASKED}.selectors[0].cel.expression"),
    "a selector of too much CEL": Case(
        claim(exactly(selectors=[cel("true ||" + " " * 10_240 + "true")])), f"{ASKED}.selectors[0].cel.expression"
    ),
    "an unparsable capacity": Case(
        claim(exactly(capacity={"requests": {"memory": "much"}})), f"{ASKED}.capacity.requests.memory"
    ),
    "nine alternatives": Case(
        claim(first_available(*(alternative(f"a{number}") for number in range(9)))), f"{FIRST}.firstAvailable"
    ),
    "two alternatives of one name": Case(
        claim(first_available(alternative(), alternative())), f"{FIRST}.firstAvailable[1].name"
    ),
    "an alternative's name that is no label": Case(
        claim(first_available(alternative("A"))), f"{FIRST}.firstAvailable[0].name"
    ),
    "an alternative without a class": Case(
        claim(first_available(alternative(deviceClassName=None))), f"{FIRST}.firstAvailable[0].deviceClassName"
    ),
    "an alternative with admin access": Case(
        claim(first_available(alternative(adminAccess=True))), f"{FIRST}.firstAvailable[0].adminAccess"
    ),
    "an alternative of a negative count": Case(
        claim(first_available(alternative(count=-2))), f"{FIRST}.firstAvailable[0].count"
    ),
    "an unknown operator of a toleration": Case(tolerating(key="a", operator="In"), f"{ASKED}.tolerations[0].operator"),
    "an unknown effect of a toleration": Case(
        tolerating(key="a", operator="Exists", effect="PreferNoSchedule"), f"{ASKED}.tolerations[0].effect"
    ),
    "a toleration of any value that names one": Case(
        tolerating(key="a", operator="Exists", value="b"), f"{ASKED}.tolerations[0].value"
    ),
    "a toleration's key that is none": Case(tolerating(key="a b", operator="Exists"), f"{ASKED}.tolerations[0].key"),
    "a toleration's value that is none": Case(tolerating(key="a", value="b c"), f"{ASKED}.tolerations[0].value"),
    "33 constraints": Case(claim(constraints=[CONSTRAINT] * 33), "spec.devices.constraints"),
    "a constraint of nothing": Case(constrained(), "spec.devices.constraints[0]"),
    "a constraint on an attribute without a domain": Case(
        constrained(matchAttribute="model"), "spec.devices.constraints[0].matchAttribute"
    ),
    "a constraint on a domain that is none": Case(
        constrained(matchAttribute="gpu_example/model"), "spec.devices.constraints[0].matchAttribute"
    ),
    "a constraint on a domain that is too long": Case(
        constrained(distinctAttribute=f"{'x' * 64}/model"), "spec.devices.constraints[0].distinctAttribute"
    ),
    "a constraint on an attribute that is no identifier": Case(
        constrained(matchAttribute="gpu.example.com/1st"), "spec.devices.constraints[0].matchAttribute"
    ),
    "a constraint on an attribute that is too long": Case(
        constrained(distinctAttribute=f"gpu.example.com/{'x' * 33}"), "spec.devices.constraints[0].distinctAttribute"
    ),
    "a constraint over an unknown request": Case(
        constrained(**CONSTRAINT, requests=["s"]), "spec.devices.constraints[0].requests[0]"
    ),
    "a constraint over an unknown alternative": Case(
        constrained(**CONSTRAINT, requests=["r/a"]), "spec.devices.constraints[0].requests[0]"
    ),
    "a constraint over a request twice": Case(
        constrained(**CONSTRAINT, requests=["r", "r"]), "spec.devices.constraints[0].requests[1]"
    ),
    "33 configurations": Case(claim(config=[opaque()] * 33), "spec.devices.config"),
    "a configuration of nothing": Case(claim(config=[{"requests": ["r"]}]), "spec.devices.config[0].opaque"),
    "a configuration of an unknown request": Case(
        claim(config=[{**opaque(), "requests": ["s"]}]), "spec.devices.config[0].requests[0]"
    ),
    "a configuration without a driver": Case(
        claim(config=[opaque(driver=None)]), "spec.devices.config[0].opaque.driver"
    ),
    "a configuration of a driver that is none": Case(
        claim(config=[opaque(driver="a_b")]), "spec.devices.config[0].opaque.driver"
    ),
    "a configuration without parameters": Case(
        claim(config=[opaque(parameters=None)]), "spec.devices.config[0].opaque.parameters"
    ),
    "a configuration with a list of parameters": Case(
        claim(config=[opaque(parameters=[1])]), "spec.devices.config[0].opaque.parameters"
    ),
    "a configuration that is too long": Case(
        claim(config=[opaque(parameters={"a": "x" * 10_240})]), "spec.devices.config[0].opaque.parameters"
    ),
}

TEMPLATES = {
    f"a template of {name}": Case(template(case.obj), case.field.replace("spec.", "spec.spec.", 1))
    for name, case in CLAIMS.items()
    if case.field.startswith("spec.")
}

CLASSES = {
    "33 selectors of a class": Case(an_object("DeviceClass", {"selectors": [cel("true")] * 33}), "spec.selectors"),
    "a class's selector without CEL": Case(
        an_object("DeviceClass", {"selectors": [{"cel": {}}]}), "spec.selectors[0].cel.expression"
    ),
    "33 configurations of a class": Case(an_object("DeviceClass", {"config": [opaque()] * 33}), "spec.config"),
    "a class's configuration of nothing": Case(an_object("DeviceClass", {"config": [{}]}), "spec.config[0].opaque"),
    "an extended resource without a domain": Case(
        an_object("DeviceClass", {"extendedResourceName": "gpu"}), "spec.extendedResourceName"
    ),
    "an extended resource of Kubernetes' own": Case(
        an_object("DeviceClass", {"extendedResourceName": "kubernetes.io/gpu"}), "spec.extendedResourceName"
    ),
    "an extended resource's name that is none": Case(
        an_object("DeviceClass", {"extendedResourceName": "example.com/g pu"}), "spec.extendedResourceName"
    ),
}

ALL = "device.attributes.all("

CEL = {
    "CEL that is none": Case(
        claim(exactly(selectors=[cel("true"), cel("device.driver ==")])), f"{ASKED}.selectors[1].cel.expression"
    ),
    "CEL of an unknown field": Case(
        claim(first_available(alternative(selectors=[cel("device.drive == ''")]))),
        f"{FIRST}.firstAvailable[0].selectors[0].cel.expression",
    ),
    "CEL that is no condition": Case(
        an_object("DeviceClass", {"selectors": [cel("device.driver")]}), "spec.selectors[0].cel.expression"
    ),
    "CEL that may cost too much": Case(
        claim(exactly(selectors=[cel(f"{ALL}a, {ALL}b, {ALL}c, device.attributes[a].all(d, d == c))))")])),
        f"{ASKED}.selectors[0].cel.expression",
    ),
    "CEL of a template that is none": Case(
        template(claim(exactly(selectors=[cel("device.attributes[")]))),
        "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression",
    ),
}
"""Refused where CEL is compiled."""

STRICTER = {
    "a count of none": Case(claim(exactly(count=0)), f"{ASKED}.count"),
    "a count as large as 64 bits hold": Case(claim(exactly(count=2**63 - 1)), f"{ASKED}.count"),
    "a negative capacity asked for": Case(
        claim(exactly(capacity={"requests": {"memory": "-1Gi"}})), f"{ASKED}.capacity.requests.memory"
    ),
    "a constraint of both kinds": Case(
        constrained(matchAttribute=MATCH, distinctAttribute=MATCH), "spec.devices.constraints[0]"
    ),
}
"""What Kubernetes takes and we refuse: it would be read as something else than it says, or as nothing at all."""

GOOD = {
    "a claim": claim(),
    "a claim of 32 requests": claim(*numbered(32)),
    "a claim of all devices": claim(exactly(allocationMode="All")),
    "a claim with an empty mode": claim(exactly(allocationMode="", count=2)),
    "a claim of more devices than a claim holds": claim(exactly(count=33)),
    "a claim with no alternatives": claim({**exactly(), "firstAvailable": []}),
    "a claim of alternatives": claim(
        first_available(alternative(), alternative("b", allocationMode="All", selectors=[cel("true")])),
        constraints=[{**CONSTRAINT, "requests": ["r/a", "r"]}],
        config=[{**opaque(), "requests": ["r/b"]}],
    ),
    "a claim that tolerates": claim(
        exactly(
            tolerations=[
                {"operator": "Exists"},
                {"key": "example.com/a", "value": "b", "effect": "NoSchedule", "tolerationSeconds": 3},
            ],
            capacity={"requests": {"memory": "1500m", "gpu.example.com/cores": 2}},
        )
    ),
    "an attribute of three parts": constrained(matchAttribute="a/b/c"),
    "a template": template(claim()),
    "a class": an_object(
        "DeviceClass",
        {"selectors": [cel("true")], "config": [opaque()], "extendedResourceName": "example.com/gpu"},
    ),
}
"""What Kubernetes takes, and we do."""
