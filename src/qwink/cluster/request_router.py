"""Ray Serve's side of the choice of a replica: a request router that asks `Router`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from qwink.cluster.destination import Destination
from qwink.cluster.routing import Router


class PictureRouter(RequestRouter):  # type: ignore[misc]
    """Sends a request to the replica that `Router` chooses for its argument `destination`.

    Ray Serve makes one for each handle and calls it in one event loop.
    """

    def initialize_state(self, **options: Any) -> None:
        self._router = Router((), **options)
        # The replica of each request that is being sent or runs.
        self._placed: dict[str, str] = {}

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        if pending_request is None or not by_name:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # between attempts that all failed
        self._update(by_name)
        request_id = pending_request.metadata.internal_request_id
        self._placed.pop(request_id, None)  # of an earlier attempt
        wanted = pending_request.kwargs.get("destination") or Destination()
        loads = Counter(self._placed.values())
        name = self._router.choose(wanted.picture, wanted.starts, loads)
        self._placed[request_id] = name
        pending_request.future.add_done_callback(
            lambda future: self._placed.pop(request_id, None) if future.cancelled() else None
        )
        # The others follow in case that this one does not respond.
        return [[by_name.pop(name)], list(by_name.values())]

    def _update(self, names: Iterable[str]) -> None:
        """Make the replicas of the router the given ones."""
        known = set(self._router.replicas)
        for name in known.difference(names):
            self._router.remove(name)
        for name in names:
            self._router.add(name)

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        self._placed[pending_request.metadata.internal_request_id] = replica_id.unique_id

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._placed.pop(internal_request_id, None)
