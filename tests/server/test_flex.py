"""Requests with service_tier "flex" let others pass."""

from __future__ import annotations

from tests.server.process import Serve, Server, ask, user

LONG = {
    "max_tokens": 1500,
    "messages": [user("Hi")],
    "service_tier": "flex",
    "temperature": 2,
    "seed": 1,
}


def ended(server: Server, field: str) -> list[int]:
    """What the log says of the requests for answers, in the order in which they ended."""
    return [
        one.get(field, 0) for one in server.requests() if one["route"] == "/v1/chat/completions"
    ]


def test_a_live_request_passes_those_that_wait(serve: Serve) -> None:
    server = serve("--max-running", 2, "--max-waiting", 4).wait_ready()
    flexible = [server.send(**LONG) for _ in range(4)]
    try:
        server.wait_until(lambda: server.metric("qwink_running") > 0)
        with server.client() as client:
            answer = ask(client, user("Hello"), max_tokens=2)
        assert answer.usage.completion_tokens == 2
        server.wait_until(lambda: 2 in ended(server, "completion_tokens"))
        # One of the four may have run before it, and one beside it.
        assert ended(server, "completion_tokens").index(2) <= 2
    finally:
        for connection in flexible:
            connection.close()


def test_flexible_requests_have_room_of_their_own(serve: Serve) -> None:
    server = serve("--max-running", 1, "--max-waiting", 1).wait_ready()
    flexible = [server.send(**LONG) for _ in range(4)]
    try:
        server.wait_until(lambda: ended(server, "status") == [429])
        with server.client() as client:
            assert ask(client, user("Hello"), max_tokens=2).usage.completion_tokens == 2
    finally:
        for connection in flexible:
            connection.close()
