"""What goes on in a cluster while something fails: gangs are submitted, pods are judged, and others live their lives.

Everybody here speaks with the API server directly, and writes down what it answered and when.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from threading import Event, Lock, Thread

from tests.controlplane import ApiError, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.e2e import teams
from tests.e2e.labs import Lab

RUNTIME = "1s"
PODS = 2
"""Of each gang, with a device each."""

SECONDS_BETWEEN_GANGS = 1.0
SECONDS_BETWEEN_BYSTANDERS = 0.2
SECONDS_BETWEEN_REVIEWS = 1.0
REVIEWERS = 5
"""So many ask at a time, since one that is not answered waits for seconds."""

TEMPLATE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. began, ended: seconds, monotonic; refusal: what was said against it."""

    began: float
    ended: float
    refusal: str = ""

    @property
    def took(self) -> float:
        return self.ended - self.began


@dataclass(slots=True, kw_only=True)
class Load:
    """The three streams.

    gangs: when each was submitted, which always succeeds. bystanders: pods of a namespace that has no queue. reviews:
    pods of the queued one, as dry runs. slipped: those of them that the API server took without asking Muster.
    """

    lab: Lab
    others: Namespace
    gangs: dict[str, float] = field(default_factory=dict)
    bystanders: list[Request] = field(default_factory=list)
    reviews: list[Request] = field(default_factory=list)
    slipped: list[str] = field(default_factory=list)
    _submits: bool = False
    _submitting: Lock = field(default_factory=Lock)
    _done: Event = field(default_factory=Event)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _errors: list[BaseException] = field(default_factory=list)

    @property
    def _client(self) -> Client:
        """One that is told of every refusal."""
        return replace(self.lab.client, patient=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have all streams run until the block ends. Raises what went wrong in them, refusals aside."""
        streams = [(self._submit, SECONDS_BETWEEN_GANGS), (self._pass_by, SECONDS_BETWEEN_BYSTANDERS)]
        streams += [(self._have_judged, SECONDS_BETWEEN_REVIEWS)] * REVIEWERS
        threads = [Thread(target=self._repeat, args=stream, name=stream[0].__name__) for stream in streams]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def submit(self) -> None:
        """Have gangs submitted from now on."""
        self._submits = True

    def pause(self) -> None:
        """Have no more gangs submitted, and none be under way."""
        with self._submitting:
            self._submits = False

    def _repeat(self, one: Callable[[int], None], pause: float) -> None:
        try:
            while not self._done.is_set():
                one(next(self._numbers))
                self._done.wait(pause)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._errors.append(error)

    def _submit(self, number: int) -> None:
        name = f"gang-{number}"
        job = teams.job(name, pods=PODS, template=TEMPLATE, annotations={workloads.RUNTIME: RUNTIME})
        with self._submitting:
            if self._submits:
                self.gangs[name] = time.monotonic()
                self._client.create(self.lab.team.jobs, job)

    def _pass_by(self, number: int) -> None:
        pod = workloads.pod(f"bystander-{number}")
        self.bystanders.append(asked(lambda: self.others.create(pod)))
        self.lab.client.delete(f"{self.others.pods}/bystander-{number}?gracePeriodSeconds=0")

    def _have_judged(self, number: int) -> None:
        path, pod = f"{self.lab.namespace.pods}?dryRun=All", workloads.pod(f"review-{number}")

        def judged() -> None:
            answer = self._client.create(path, pod)
            if not answer["spec"].get("schedulingGates"):
                self.slipped.append(pod["metadata"]["name"])

        self.reviews.append(asked(judged))

    def unfinished(self) -> list[str]:
        """Return the gangs that have not run whole."""
        jobs = {job["metadata"]["name"]: job for job in self.lab.client.items(self.lab.team.jobs)}
        done = {name for name, job in jobs.items() if job.get("status", {}).get("succeeded", 0) == PODS}
        return sorted(self.gangs.keys() - done)

    def forget(self) -> None:
        """Delete all gangs, which have ended."""
        self.lab.client.delete(f"{self.lab.team.jobs}?propagationPolicy=Background")
        self.gangs.clear()


def asked(request: Callable[[], None]) -> Request:
    """Send a request and say how it went."""
    began, refusal = time.monotonic(), ""
    try:
        request()
    except (ApiError, OSError, HTTPException) as error:
        refusal = str(error) or type(error).__name__
    return Request(began=began, ended=time.monotonic(), refusal=refusal)
