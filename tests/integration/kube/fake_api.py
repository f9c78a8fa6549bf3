"""An API server of one page, on a local port: lists in pages, watches, keeps versions, and fails on demand.

It knows no schema, and takes whatever it is sent. `answers` are given instead of its own, in turn, to the
requests that they were made for.
"""

import asyncio
import copy
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from admission.kube import fence_controller
from admission.kube.cache import watched_resources

Json = dict[str, Any]

PLURALS = {kind.plural for kind in (*watched_resources.ALL, *fence_controller.KINDS)} | {"podtemplates"}
"""What can be listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that came."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    content: str
    raw_path: str = ""
    """As it was sent: quoted."""
    accept: str = ""


@dataclass(slots=True)
class FakeApi:
    """The server. `start` after `stop` listens on the same port again, with everything it knew."""

    asked: list[Asked] = field(default_factory=list)
    answers: dict[tuple[str, str], list[web.Response]] = field(default_factory=lambda: defaultdict(list))
    objects: dict[str, dict[str, Json]] = field(default_factory=lambda: defaultdict(dict))
    port: int = 0
    absent: set[str] = field(default_factory=set)
    """Collections that are not served."""
    refusing: str = ""
    """A policy by which dry runs are refused, if it is there."""
    oldest: int = 0
    """Watches from before this version are answered 410."""
    _version: int = 10
    _history: list[tuple[int, str, str, Json]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None
    _streams: set[web.StreamResponse] = field(default_factory=set)

    async def start(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Vanish: connections break in the middle of what they were doing."""
        assert self._runner is not None
        self.break_watches()
        await self._runner.cleanup()

    def break_watches(self) -> None:
        for stream in list(self._streams):
            transport = stream._req.transport if stream._req else None  # what a cable does that is pulled
            if transport is not None:
                transport.abort()
        self._streams.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, status: int, body: Any = None, **headers: str) -> None:
        """Give this answer, once, instead of one's own."""
        text = body if isinstance(body, str) else json.dumps(body if body is not None else {})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[method, path].append(web.Response(status=status, text=text, headers=named))

    def put(self, collection: str, obj: Json) -> Json:
        """Create or replace an object, as another client would."""
        self._version += 1
        meta = obj.setdefault("metadata", {})
        key = meta["name"] if "namespace" not in meta else f"{meta['namespace']}/{meta['name']}"
        known = self.objects[collection].get(key)
        meta.setdefault("uid", known["metadata"]["uid"] if known else f"uid-{self._version}")
        meta["resourceVersion"] = str(self._version)
        self.objects[collection][key] = obj
        self._log_version(collection, "MODIFIED" if known else "ADDED", obj)
        return obj

    def delete(self, collection: str, key: str) -> None:
        obj = self.objects[collection].pop(key)
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._log_version(collection, "DELETED", obj)

    def event(self, collection: str, kind: str, obj: Json) -> None:
        """Send an event of one's own making: a bookmark, an error, nonsense."""
        self._version += 1
        self._log_version(collection, kind, obj)

    def compact(self) -> None:
        """Forget the past: watches have to begin from now."""
        self.oldest = self._version

    def count(self, method: str, path: str, **query: str) -> int:
        """How often this was asked."""
        return sum(
            asked.method == method and asked.path == path and query.items() <= dict(asked.query).items()
            for asked in self.asked
        )

    async def next_request(self) -> None:
        """Wait until something is asked."""
        await self._came.wait()
        self._came.clear()

    def last(self, method: str, path: str) -> Asked:
        return next(asked for asked in reversed(self.asked) if (asked.method, asked.path) == (method, path))

    def _log_version(self, collection: str, kind: str, obj: Json) -> None:
        self._history.append((self._version, collection, kind, copy.deepcopy(obj)))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        asked = Asked(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            body=json.loads(text) if text else None,
            content=request.content_type,
            raw_path=request.raw_path.partition("?")[0],
            accept=request.headers.get("Accept", ""),
        )
        self.asked.append(asked)
        self._came.set()
        if prepared := self.answers[asked.method, asked.path]:
            return prepared.pop(0)
        handlers: dict[str, Callable[[Asked], web.Response]] = {
            "GET": self._get,
            "POST": self._post,
            "PUT": self._replace,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        if asked.path in self.absent:
            return _status(404, "NotFound", "the server could not find the requested resource")
        if asked.query.get("dryRun") == "All":
            return self._dry_run()
        if asked.query.get("watch") == "true":
            return await self._watch(request, asked)
        return handlers[asked.method](asked)

    async def _watch(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        since = int(asked.query["resourceVersion"])
        if since < self.oldest:
            return _status(410, "Expired", "too old resource version")
        stream = web.StreamResponse()
        await stream.prepare(request)
        self._streams.add(stream)
        loop = asyncio.get_running_loop()
        end = loop.time() + float(asked.query["timeoutSeconds"])
        while loop.time() < end and stream in self._streams:
            changed = self._changed
            for version, collection, kind, obj in list(self._history):
                if collection == asked.path and version > since:
                    await stream.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
                    since = version
            try:
                async with asyncio.timeout(max(0.0, end - loop.time())):
                    await changed.wait()
            except TimeoutError:
                break
        return stream

    def _get(self, asked: Asked) -> web.Response:
        name = asked.path.rsplit("/", 1)[1]
        if name not in PLURALS:
            found = self._find(asked.path)
            return web.json_response(found) if found else _status(404, "NotFound", f"{name} not found", name=name)
        items = [self.objects[asked.path][key] for key in sorted(self.objects[asked.path])]
        begin = int(asked.query.get("continue", 0))
        end = begin + int(asked.query.get("limit", len(items) + 1))
        token = {"continue": str(end)} if end < len(items) else {}
        return web.json_response(
            {"metadata": {"resourceVersion": str(self._version), **token}, "items": items[begin:end]}
        )

    def _post(self, asked: Asked) -> web.Response:
        collection, namespace = _collection(asked.path)
        obj = copy.deepcopy(asked.body)
        if namespace:
            obj["metadata"]["namespace"] = namespace
        if self._find(f"{asked.path}/{obj['metadata']['name']}") is not None:
            return _status(409, "AlreadyExists", "there is one already", name=obj["metadata"]["name"])
        return web.json_response(self.put(collection, obj), status=201)

    def _dry_run(self) -> web.Response:
        if any(self.refusing in known for known in self.objects.values()):
            return _status(422, "Invalid", f"ValidatingAdmissionPolicy '{self.refusing}' denied request")
        return web.json_response({}, status=201)

    def _replace(self, asked: Asked) -> web.Response:
        found = self._find(asked.path)
        collection, _ = _collection(asked.path.rsplit("/", 1)[0])
        name = asked.path.rsplit("/", 1)[1]
        if found is None:
            return _status(404, "NotFound", f"{name} not found", name=name)
        fresh = copy.deepcopy(asked.body)
        if fresh["metadata"].get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
            return _status(409, "Conflict", "the object has been modified", name=name)
        return web.json_response(self.put(collection, fresh))

    def _patch(self, asked: Asked) -> web.Response:
        path = asked.path.removesuffix("/status")
        found = self._find(path)
        collection, namespace = _collection(path.rsplit("/", 1)[0])
        name = path.rsplit("/", 1)[1]
        if found is None:
            if asked.content != "application/apply-patch+yaml" or path != asked.path:
                return _status(404, "NotFound", f"{name} not found", name=name)
            found = {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}}
        for field_ in ("uid", "resourceVersion"):
            wanted = asked.body.get("metadata", {}).get(field_)
            if wanted and wanted != found["metadata"].get(field_):
                return _status(409, "Conflict", f"precondition failed: {field_}", name=name)
        fresh = copy.deepcopy(found)
        if path != asked.path:
            fresh["status"] = asked.body["status"]
        else:
            _merge(fresh, asked.body)
        return web.json_response(self.put(collection, fresh))

    def _delete(self, asked: Asked) -> web.Response:
        found = self._find(asked.path)
        collection, namespace = _collection(asked.path.rsplit("/", 1)[0])
        name = asked.path.rsplit("/", 1)[1]
        if found is None:
            return _status(404, "NotFound", f"{name} not found", name=name)
        wanted = ((asked.body or {}).get("preconditions") or {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            return _status(409, "Conflict", "precondition failed: uid", name=name)
        self.delete(collection, f"{namespace}/{name}" if namespace else name)
        return web.json_response({"kind": "Status", "status": "Success"})

    def _find(self, path: str) -> Json | None:
        collection, namespace = _collection(path.rsplit("/", 1)[0])
        name = path.rsplit("/", 1)[1]
        return self.objects[collection].get(f"{namespace}/{name}" if namespace else name)


def status(code: int, reason: str, message: str, *, name: str = "") -> Json:
    """Return a Status as the API server writes it."""
    details = {"details": {"name": name}} if name else {}
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **details}


def _status(code: int, reason: str, message: str, *, name: str = "") -> web.Response:
    return web.json_response(status(code, reason, message, name=name), status=code)


def _collection(path: str) -> tuple[str, str]:
    """Return where all objects of the kind are, and the namespace of a path that has one."""
    before, found, after = path.partition("/namespaces/")
    if not found or "/" not in after:
        return path, ""
    namespace, plural = after.split("/", 1)
    return f"{before}/{plural}", namespace


def _merge(into: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif isinstance(value, list):
            gone = {item["name"] for item in value if isinstance(item, dict) and item.get("$patch") == "delete"}
            into[key] = [item for item in into.get(key, []) if item["name"] not in gone] if gone else value
        else:
            into[key] = value
