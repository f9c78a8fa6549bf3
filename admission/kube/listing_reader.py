"""Lists pods and Events at the moment when somebody asks: the real `dashboard.ports.ListingReader`."""

import asyncio

from admission.api import listings
from admission.api.listings import EventList, PodList
from admission.kube.client import paths
from admission.kube.client.connection import Connection, Params, Request, RetryPolicy

ROOT = "/api/v1"

ONE_TRY = RetryPolicy(tries=1, timeout=3.0)
"""A person waits for the page, which is shown without the list if the API server is slower."""


class ListingReader:
    """Lists by one API server, under the account of this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def pods(self, namespace: str, *, labels: str, fields: str, limit: int) -> PodList:
        """Return the pods of a namespace that have these labels and fields.

        Raises ClusterUnavailableError without an answer in time, and ForbiddenError where this process may not list.
        """
        params: dict[str, str | int] = {"limit": limit, "includeObject": "None"}
        params |= {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        request = Request(method="GET", path=paths.within(ROOT, namespace, "pods"), params=params, as_table=True)
        return await asyncio.to_thread(listings.decode_pods, await self._connection.send(request, ONE_TRY))

    async def events(self, namespace: str, *, fields: str, limit: int) -> EventList:
        """Return the Events of a namespace that have these fields. Raises as `pods`."""
        params: Params = {"limit": limit, "fieldSelector": fields}
        path = paths.within(ROOT, namespace, "events")
        found = await self._connection.get(path, params, retry_policy=ONE_TRY)
        return await asyncio.to_thread(listings.decode_events, found)
