"""A stand-in for the API server of a large cluster, as a process: `python -m tests.bench.scale_api PORT NODES GANGS …`.

It keeps objects as JSON text, as etcd does, and serves what Muster asks: lists in pages, watches with bookmarks, leases
and patches that name a version. It is the rest of Kubernetes, too: it lets pods run whose gates were opened, and makes
the changes that a busy cluster makes. `/bench/…` tells it what to do, and what it saw.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random

import msgspec
import uvloop
from aiohttp import web

from tests.bench import scale_town
from tests.bench.scale_town import Json, Size
from tests.integration.kube.fake_api import PLURALS, _collection, _merge, status

BOOKMARK_SECONDS = 30.0
PODS, CLAIMS = "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"
JOBS, NODES = "/apis/batch/v1/jobs", "/api/v1/nodes"
USER = "system:serviceaccount:muster-system:muster"
LIFE_EVERY = 10.0
"""Seconds after which a gang ends and another comes."""


@dataclass(slots=True)
class Collection:
    """Objects of one kind: their text by key, and what happened to them."""

    texts: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, bytes]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    keys: list[str] | None = None


class Api:
    """The server and the cluster behind it."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.version = 1_000
        self.collections: dict[str, Collection] = defaultdict(Collection)
        self.asked: Counter[str] = Counter()
        self.gates: dict[str, float] = {}
        """When the first gate of each gang was opened, by the Job's name; monotonic seconds."""
        self.made = 0
        """Changes that were made by the cluster itself."""
        self.next_gang = size.gangs
        self.oldest = 0
        self.free = {
            scale_town.node_name(node): [f"gpu-{gpu}" for gpu in range(scale_town.DEVICES)]
            for node in range(size.nodes)
        }
        self.random = Random(2026)  # noqa: S311 - the same stream each time
        self.tasks: set[asyncio.Task[None]] = set()

    def fill(self) -> None:
        for path, made in scale_town.everything(self.size):
            self.put(path, made, quiet=True)
        for gang in range(self.size.running):
            for pod in range(scale_town.PODS):
                number = gang * scale_town.PODS + pod
                self.free[scale_town.node_name(number // scale_town.DEVICES)].remove(f"gpu-{number % 8}")

    # Objects.

    def put(self, path: str, made: Json, *, quiet: bool = False) -> Json:
        self.version += 1
        held = self.collections[path]
        meta = made["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        meta.setdefault("uid", f"uid-{path.rsplit('/', 1)[1]}-{key}")
        meta.setdefault("creationTimestamp", scale_town._time(scale_town.NOON))
        meta["resourceVersion"] = str(self.version)
        known = key in held.texts
        if not known:
            held.keys = None
        held.texts[key] = msgspec.json.encode(made)
        held.versions[key] = self.version
        if not quiet:
            self.tell(held, "MODIFIED" if known else "ADDED", held.texts[key])
        return made

    def tell(self, held: Collection, kind: str, text: bytes) -> None:
        held.history.append((self.version, b'{"type":"%s","object":%s}\n' % (kind.encode(), text)))
        held.changed.set()
        held.changed = asyncio.Event()

    def read(self, path: str, key: str) -> Json:
        found: Json = msgspec.json.decode(self.collections[path].texts[key])
        return found

    # Requests.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        watching = request.query.get("watch") == "true"
        self.asked[
            f"{'WATCH' if watching else method} {path.rsplit('/', 1)[1] if method == 'GET' else _what(path)}"
        ] += 1
        if path == "/version":
            return web.json_response({"major": "1", "minor": "37"})
        if path.endswith("/selfsubjectreviews"):
            return web.json_response({"status": {"userInfo": {"username": USER}}}, status=201)
        if watching:
            return await self.watch(request)
        if method == "GET":
            return self.get(request)
        body = await request.json() if request.can_read_body else {}
        answers: dict[str, Callable[[str, Json], web.Response]] = {
            "POST": self.post,
            "PATCH": self.patch,
            "DELETE": self.delete,
        }
        return answers[method](path, body)

    def get(self, request: web.Request) -> web.Response:
        path = request.path
        name = path.rsplit("/", 1)[1]
        if name not in PLURALS:
            collection, key = _place(path)
            text = self.collections[collection].texts.get(key)
            return _json(text) if text is not None else _status(404, "NotFound", f"{name} not found", name=name)
        held = self.collections.get(path, Collection())
        if held.keys is None:
            held.keys = sorted(held.texts)
        version, _, begin = request.query.get("continue", f"{self.version}:").partition(":")
        limit = int(request.query.get("limit", 0)) or len(held.keys) + 1
        first = 0 if not begin else int(begin)
        page = [held.texts[key] for key in held.keys[first : first + limit] if key in held.texts]
        token = b',"continue":"%s:%d"' % (version.encode(), first + limit) if first + limit < len(held.keys) else b""
        head = b'{"metadata":{"resourceVersion":"%s"%s},"items":[' % (version.encode(), token)
        return _json(head + b",".join(page) + b"]}")

    def post(self, path: str, body: Json) -> web.Response:
        collection, namespace = _collection(path)
        if namespace:
            body["metadata"]["namespace"] = namespace
        key = f"{namespace}/{body['metadata']['name']}" if namespace else body["metadata"]["name"]
        if collection.endswith("/events"):
            return _json(b'{"metadata":{}}', status=201)
        if key in self.collections[collection].texts:
            return _status(409, "AlreadyExists", "there is one already", name=body["metadata"]["name"])
        return web.json_response(self.put(collection, body), status=201)

    def patch(self, path: str, body: Json) -> web.Response:
        of_status = path.endswith("/status")
        collection, key = _place(path.removesuffix("/status"))
        if collection.endswith("/events"):
            return _json(b'{"metadata":{}}')
        name = key.rpartition("/")[2]
        if key not in self.collections[collection].texts:
            return _status(404, "NotFound", f"{name} not found", name=name)
        found = self.read(collection, key)
        for part in ("uid", "resourceVersion"):
            wanted = (body.get("metadata") or {}).get(part)
            if wanted and wanted != found["metadata"].get(part):
                return _status(409, "Conflict", f"precondition failed: {part}", name=name)
        was_gated = collection == PODS and bool(found["spec"].get("schedulingGates"))
        if of_status:
            found["status"] = body["status"]
        else:
            _merge(found, body)
        written = self.put(collection, found)
        if was_gated and not written["spec"].get("schedulingGates"):
            self.open(written)
        return web.json_response(written)

    def delete(self, path: str, _body: Json) -> web.Response:
        collection, key = _place(path)
        held = self.collections[collection]
        text = held.texts.pop(key, None)
        if text is None:
            return _status(404, "NotFound", "not found", name=key.rpartition("/")[2])
        self.version += 1
        held.keys = None
        removed = msgspec.json.decode(text)
        removed["metadata"]["resourceVersion"] = str(self.version)
        self.tell(held, "DELETED", msgspec.json.encode(removed))
        return web.json_response({"kind": "Status", "status": "Success"})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        held = self.collections[request.path]
        since = int(request.query["resourceVersion"])
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        loop = asyncio.get_running_loop()
        end = loop.time() + float(request.query["timeoutSeconds"])
        at = len(held.history)
        while at and held.history[at - 1][0] > since:
            at -= 1
        while loop.time() < end:
            changed = held.changed
            news = held.history[at:]
            at += len(news)
            if news:
                await stream.write(b"".join(line for _, line in news))
            try:
                async with asyncio.timeout(min(BOOKMARK_SECONDS, max(0.0, end - loop.time()))):
                    await changed.wait()
            except TimeoutError:
                mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
                await stream.write(json.dumps(mark).encode() + b"\n")
        return stream

    # The rest of Kubernetes.

    def open(self, pod: Json) -> None:
        """Let a pod run whose gate was opened, on the node that it was pinned to, after a moment."""
        self.gates.setdefault(pod["metadata"]["ownerReferences"][0]["name"], time.monotonic())
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        task = asyncio.get_running_loop().create_task(self.run(key))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, key: str) -> None:
        await asyncio.sleep(0.5)
        pod = self.read(PODS, key)
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        [node] = required["nodeSelectorTerms"][0]["matchFields"][0]["values"]
        claim = self.read(CLAIMS, f"{key}-gpu")
        scale_town.allocate(claim, node, self.free[node].pop(), pod["metadata"]["uid"])
        self.put(CLAIMS, claim)
        scale_town.start(pod, node)
        self.put(PODS, pod)
        self.made += 2

    def submit(self, queue: str = "express") -> str:
        """Let a gang come that fits at once."""
        gang, self.next_gang = self.next_gang, self.next_gang + 1
        for path, made in scale_town.members(gang, self.size, queue=queue):
            self.put(path, made)
            self.made += 1
        return scale_town.gang_name(gang)

    def finish(self, name: str) -> None:
        """Let a gang end and give its devices back."""
        for key in [key for key in self.collections[PODS].texts if f"/{name}-" in key]:
            pod, claim = self.read(PODS, key), self.read(CLAIMS, f"{key}-gpu")
            pod["status"]["phase"] = "Succeeded"
            result = claim["status"].pop("allocation")["devices"]["results"][0]
            claim["status"]["reservedFor"] = []
            self.free[result["pool"]].append(result["device"])
            self.put(PODS, pod)
            self.put(CLAIMS, claim)
            self.made += 2

    async def churn(self, rate: float) -> None:
        """Make so many changes a second: heartbeats of nodes, statuses of pods, and every ten seconds gangs."""
        began, made, lived = time.monotonic(), 0, 0.0
        alive: list[str] = []
        while True:
            passed = time.monotonic() - began
            if passed - lived >= LIFE_EVERY:
                lived = passed
                before = self.made
                alive.append(self.submit())
                if len(alive) > 2:
                    self.finish(alive.pop(0))
                made += self.made - before
            while made < passed * rate:
                self.touch()
                made += 1
            await asyncio.sleep(0.05)

    def touch(self) -> None:
        if self.random.random() < 0.5:
            name = scale_town.node_name(self.random.randrange(self.size.nodes))
            node = self.read(NODES, name)
            node["status"]["conditions"][0]["lastHeartbeatTime"] = str(self.version)
            self.put(NODES, node)
        else:
            gang, at = self.random.randrange(self.size.running), self.random.randrange(scale_town.PODS)
            key = f"{scale_town.namespace(gang, self.size)}/{scale_town.gang_name(gang)}-{at}"
            pod = self.read(PODS, key)
            pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = str(self.version)
            self.put(PODS, pod)
        self.made += 1

    # What the benchmark says and asks.

    async def bench(self, request: web.Request) -> web.Response:
        match request.match_info["what"]:
            case "churn":
                task = asyncio.get_running_loop().create_task(self.churn(float(request.query["rate"])))
                self.tasks.add(task)
            case "submit":
                return web.json_response({"name": self.submit(), "at": time.monotonic()})
            case _:
                pass
        told = {"asked": dict(self.asked), "gates": self.gates, "made": self.made, "version": self.version}
        texts = {path: held.texts for path, held in self.collections.items()}
        told["objects"] = {path: len(found) for path, found in texts.items()}
        if request.query.get("bytes"):
            told["bytes"] = {path: sum(map(len, found.values())) for path, found in texts.items()}
        return web.json_response(told)


def _what(path: str) -> str:
    parts = path.split("/")
    return next((part for part in parts if part in {*PLURALS, "leases", "events"}), parts[-1])


def _place(path: str) -> tuple[str, str]:
    collection, namespace = _collection(path.rsplit("/", 1)[0])
    name = path.rsplit("/", 1)[1]
    return collection, f"{namespace}/{name}" if namespace else name


def _json(text: bytes, status: int = 200) -> web.Response:
    return web.Response(body=text, status=status, content_type="application/json")


def _status(code: int, reason: str, message: str, *, name: str = "") -> web.Response:
    return web.json_response(status(code, reason, message, name=name), status=code)


@contextlib.asynccontextmanager
async def serving(size: Size, port: int) -> AsyncIterator[Api]:
    api = Api(size)
    api.fill()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/bench/{what}", api.bench)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield api
    finally:
        for task in api.tasks:
            task.cancel()
        await runner.cleanup()


async def _main(port: int, size: Size) -> None:
    async with serving(size, port):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    PORT, NODES_, GANGS_, RUNNING, QUEUES = map(int, sys.argv[1:])
    uvloop.run(_main(PORT, Size(nodes=NODES_, gangs=GANGS_, running=RUNNING, queues=QUEUES)))
