"""A witness of everything that happens to claims and pods: by watches that began before, through deaths of the API
server.

Claims are judged at every one of their versions. Only what was written in the instant of an API server's death may pass
unseen; then the watch begins anew with what is there.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from http import HTTPStatus
from http.client import HTTPException
from threading import Event, Thread
from typing import Any

from admission.api.values import quantities
from tests.controlplane import ApiError
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.e2e.labs import results_of

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
PODS = "/api/v1/pods"
BROKEN = (ApiError, OSError, HTTPException, ValueError)
"""What reading a watch raises when the API server dies, the last one in the middle of a line."""

Place = tuple[str, str]
"""A pool, and a device or counter set of it."""


@dataclass(slots=True, kw_only=True)
class Hardware:
    """Devices and shared counters of one driver, all that there ever are."""

    driver: str
    devices: dict[Place, Manifest] = field(default_factory=dict)
    counters: dict[Place, Mapping[str, Fraction]] = field(default_factory=dict)

    @classmethod
    def of(cls, driver: str, manifests: Collection[Manifest]) -> "Hardware":
        found = cls(driver=driver)
        for spec in (one["spec"] for one in manifests if one["kind"] == "ResourceSlice"):
            pool = spec["pool"]["name"]
            found.devices |= {(pool, device["name"]): device for device in spec.get("devices", ())}
            found.counters |= {(pool, one["name"]): _amounts(one["counters"]) for one in spec.get("sharedCounters", ())}
        return found

    def wrong(self, claims: Collection[Any]) -> Iterator[str]:
        """Say which devices these claims have more of than there is."""
        results = [one for claim in claims for one in results_of(claim) if one["driver"] == self.driver]
        times = Counter((one["pool"], one["device"]) for one in results)
        for place, number in times.items():
            if number > 1 and not self.devices[place].get("allowMultipleAllocations"):
                yield f"device {place} is allocated {number} times"
        drawn: defaultdict[Place, Counter[str]] = defaultdict(Counter)
        for pool, name in times:
            for one in self.devices[pool, name].get("consumesCounters", ()):
                drawn[pool, one["counterSet"]].update(_amounts(one["counters"]))
        for place, amounts in drawn.items():
            yield from _beyond(f"counters {place}", amounts, self.counters[place])
        consumed: defaultdict[Place, Counter[str]] = defaultdict(Counter)
        for one in results:
            shares = one.get("consumedCapacity", {}).items()
            consumed[one["pool"], one["device"]].update({name: quantities.parse(value) for name, value in shares})
        for place, amounts in consumed.items():
            yield from _beyond(f"capacity of {place}", amounts, _amounts(self.devices[place].get("capacity", {})))


def _amounts(listed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: quantities.parse(one["value"]) for name, one in listed.items()}


def _beyond(what: str, amounts: Mapping[str, Any], there_is: Mapping[str, Any]) -> Iterator[str]:
    for name, amount in amounts.items():
        if amount > there_is[name]:
            yield f"of {what} {amount} {name} are allocated, there is {there_is[name]}"


@dataclass(slots=True)
class Witness:
    """Watches all claims and pods, each in a thread of its own.

    wrong: what was seen that must never be. in_part: for how long (s) some pod of a gang ran, at the most, while others
    were gated. opened: when (monotonic) a pod of a gang was first seen without a gate. robbing: how many claims are
    still to be robbed of devices that no pod uses yet; robbed: how many were.
    """

    client: Client
    hardware: Hardware
    wrong: list[str] = field(default_factory=list)
    in_part: Counter[str] = field(default_factory=Counter)
    opened: dict[str, float] = field(default_factory=dict)
    robbing: int = 0
    robbed: int = 0
    versions: int = 0
    """How many versions of claims were judged."""
    gaps: int = 0
    """How often a watch began anew."""
    _claims: dict[str, Any] = field(default_factory=dict)
    _pods: dict[str, Any] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _errors: list[BaseException] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the block ends. Raises what a thread has raised."""
        done = Event()
        threads = [
            Thread(target=self._watch, args=(done, path, state, judge), name=path)
            for path, state, judge in ((CLAIMS, self._claims, self._judge_claims), (PODS, self._pods, self._judge_pods))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def _watch(self, done: Event, path: str, state: dict[str, Any], judge: Callable[[Any], None]) -> None:
        version = ""
        try:
            while not done.is_set():
                try:
                    if not version:
                        listed = self.client.get(path)
                        version = listed["metadata"]["resourceVersion"]
                        state.clear()
                        state.update({one["metadata"]["uid"]: one for one in listed["items"]})
                        self.gaps += 1
                        judge(None)
                    for event in self.client.watch(path, since=version, seconds=3):
                        version = self._take(event, state, judge)
                except BROKEN as error:
                    if isinstance(error, ApiError) and error.code == HTTPStatus.GONE:
                        version = ""
                    done.wait(0.1)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._errors.append(error)

    def _take(self, event: Any, state: dict[str, Any], judge: Callable[[Any], None]) -> str:
        """Take an event over; return the version from which to go on, none where that is too old."""
        kind, one = event["type"], event["object"]
        if kind == "ERROR":
            return ""
        if kind in ("ADDED", "MODIFIED"):
            state[one["metadata"]["uid"]] = one
        elif kind == "DELETED":
            state.pop(one["metadata"]["uid"], None)
        if kind != "BOOKMARK":
            judge(one)
        return str(one["metadata"]["resourceVersion"])

    def _judge_claims(self, claim: Any) -> None:
        self.versions += 1
        self.wrong += [one for one in self.hardware.wrong(self._claims.values()) if one not in self.wrong]
        if self.robbing and claim and results_of(claim) and not claim["status"].get("reservedFor"):
            self._rob(claim["metadata"])

    def _rob(self, meta: Any) -> None:
        path = f"/apis/resource.k8s.io/v1/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}/status"
        version = {"resourceVersion": meta["resourceVersion"]}
        try:
            self.client.merge_patch(path, {"metadata": version, "status": {"allocation": None}})
        except BROKEN:
            return  # a pod was quicker, or it is gone
        self.robbing -= 1
        self.robbed += 1

    def _judge_pods(self, pod: Any) -> None:
        """Bring up to date since when each gang runs in part."""
        name = _gang_of(pod) if pod else ""
        if name and not pod["spec"].get("schedulingGates"):
            self.opened.setdefault(name, time.monotonic())
        mates = [one for one in self._pods.values() if _gang_of(one) == name and _counts(one)]
        running = any(one["status"].get("phase") == "Running" for one in mates)
        gated = any(one["spec"].get("schedulingGates") for one in mates)
        if name and running and gated:
            self._since.setdefault(name, time.monotonic())
        elif name in self._since:
            self._note(name)

    def _note(self, name: str) -> None:
        self.in_part[name] = max(self.in_part[name], int(time.monotonic() - self._since.pop(name)))

    def finish(self) -> None:
        """Count what has lasted until now."""
        for name in list(self._since):
            self._note(name)


def _gang_of(pod: Any) -> str:
    return str(pod["metadata"].get("labels", {}).get("job-name", ""))


def _counts(pod: Any) -> bool:
    return "deletionTimestamp" not in pod["metadata"]
