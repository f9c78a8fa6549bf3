"""Every page as JSON by its schema, and its tables as CSV, by the same rights."""

import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jsonschema
import pytest

from admission.dashboard import server
from admission.dashboard.documents import openapi
from admission.dashboard.documents.openapi import OPERATIONS
from tests import dashboards
from tests.dashboard_books import Books
from tests.dashboards import ADMIN, MEMBER, NOBODY
from tests.integration import ledgers

PLACES = {
    "/queues/{name}": "/queues/research",
    "/gangs/{namespace}/{name}": "/gangs/team-a/train",
    "/devices/{node}": "/devices/node-3",
    "/ledger/statements/{queue}": "/ledger/statements/team-a",
    "/ledger": "/ledger?from=2026-03-01&to=2026-03-02",
    "/past": "/past?at=2026-03-01T12:03",
}
JSON, CSV = {"Accept": "application/json"}, {"Accept": "text/csv"}


class Program:
    """A program that asks the dashboard with a token."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session

    async def get(self, path: str, token: str = ADMIN, **headers: str) -> tuple[int, str, str]:
        """Return the status, the kind and the text of an answer."""
        sent = {"Authorization": f"Bearer {token}", **headers} if token else headers
        async with self._session.get(f"{self._url}{path}", headers=sent, allow_redirects=False) as answer:
            return answer.status, answer.content_type, await answer.text()

    async def json(self, path: str, token: str = ADMIN) -> Any:
        _, kind, text = await self.get(path, token, **JSON)
        assert kind == "application/json"
        return json.loads(text)


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with dashboards.a_site(books=Books(ledgers.a_history())) as site, aiohttp.ClientSession() as session:
        yield Program(site.url, session)


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.path for operation in OPERATIONS])
async def test_a_page_is_json_by_its_schema_and_csv(program: Program, operation: openapi.Operation) -> None:
    path = PLACES.get(operation.path, operation.path)
    schema = {**openapi.document(), "$ref": f"#/components/schemas/{operation.document.__name__}"}

    found = await program.json(path)
    _, kind, text = await program.get(path, **CSV)

    jsonschema.validate(found, schema)
    assert (found["kind"], found["apiVersion"]) == (operation.document.__name__, "dashboard.muster.dev/v1")
    assert kind == "text/csv"
    assert len(next(csv.reader(io.StringIO(text)), [])) > 1 or "statements" in path


async def test_every_page_is_described_and_the_description_is_there_for_everybody(program: Program) -> None:
    async with dashboards.a_site() as site:
        router = server.application(site.app_context).router
    pages = {
        resource.canonical
        for resource in router.resources()
        if {"GET"} & {route.method for route in resource} and resource.canonical not in server.OPEN
    }

    status, kind, text = await program.get("/openapi.json", token="")

    assert pages - {"/static/{name}", "/events"} == {operation.path for operation in OPERATIONS}
    assert (status, kind, json.loads(text)) == (200, "application/json", openapi.document())


async def test_programs_see_no_more_than_pages_show(program: Program) -> None:
    node = await program.json("/devices/node-1", MEMBER)
    gangs = await program.json("/gangs", MEMBER)
    refused = {path: await program.get(path, NOBODY, **JSON) for path in ("/queues", "/ledger", "/gangs/team-a/train")}

    assert {one["gang"] for one in node["items"]} == {"", "team-a/train"}
    assert {one["namespace"] for one in gangs["items"]} == {"team-a"}
    assert {path: status for path, (status, _, _) in refused.items()} == dict.fromkeys(refused, 403)
    assert json.loads(refused["/queues"][2])["right"] == "list queues.muster.dev"
    assert (await program.get("/queues", token="", **JSON))[:2] == (401, "application/json")


async def test_what_waited_is_a_table_beside_what_would_fit_for_who_may_see_all_books(program: Program) -> None:
    every, own = await program.json("/capacity"), await program.json("/capacity", MEMBER)
    rows = list(csv.DictReader(io.StringIO((await program.get("/capacity?format=csv&table=waited"))[2])))

    assert [(one["shape"], one["queue"], one["seconds"]) for one in every["waited"]] == [
        ("2x4:gpu", "production", 14_400),
        ("1xall:gpu", "research", 7_200),
    ]
    assert [row["queue"] for row in rows] == ["production", "research"]
    assert (own["waited"], own["waitedNote"]) == ([], "")
    assert {one["node"]: one["closed"] for one in every["items"]}["node-2"] == "unschedulable"


async def test_a_program_gets_as_much_of_a_list_as_it_asks_for_and_csv_has_all_of_it(program: Program) -> None:
    second = await program.json("/gangs?size=4&page=2&sort=gang")
    rows = list(csv.DictReader(io.StringIO((await program.get("/gangs?format=csv&sort=gang"))[2])))

    assert (second["total"], second["pages"], [one["name"] for one in second["items"]]) == (
        6,
        2,
        ["secret", "whispered"],
    )
    assert [row["name"] for row in rows][-2:] == ["secret", "whispered"]
    assert rows[1]["asks.gpus"] == "24"
    assert rows[2]["nodes"] == "node-1"


async def test_without_branches_that_are_named_the_tree_is_whole_and_other_tables_are_named(program: Program) -> None:
    tree = await program.json("/queues")
    accounts = (await program.get("/past?at=2026-03-01T12:03&format=csv&table=accounts"))[2]
    status, _, text = await program.get("/past?format=csv&table=nothing")

    assert [(one["name"], one["level"]) for one in tree["items"]] == [
        *(("lab", 1), ("production", 2), ("research", 2), ("vision", 3), ("orphan", 1)),
    ]
    assert tree["items"][0]["subtree"]["gpus"]["used"] == "6"
    assert accounts.startswith("queue,meter,nominal,reserved,used\r\n")
    assert status == 400
    assert "?table=items, ?table=accounts" in json.loads(text)["message"]
