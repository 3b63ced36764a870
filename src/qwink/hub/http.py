"""HTTP with a hub: retries, and messages that explain refusals and network errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx

from qwink.errors import DownloadError

TRIES = 5
BACKOFF_S = 1.0  # pause before the second try; it doubles with each further try
_MAX_PAUSE_S = 60.0  # the longest pause that a hub may ask for
_BUSY = (408, 425, 429, 500, 502, 503, 504)
BY_HAND = "or copy its files into a folder by other means and give that folder as --model FOLDER"

T = TypeVar("T")


class Interrupted(Exception):
    """A transfer failed in a way that may pass. `pause` is the Retry-After of the hub, in seconds.

    `progressed`: this try received data, so `retry` counts its tries from one again.
    """

    def __init__(self, reason: str, pause: float = 0.0, progressed: bool = False) -> None:
        super().__init__(reason)
        self.pause, self.progressed = pause, progressed


@contextmanager
def client(headers: dict[str, str]) -> Iterator[httpx.Client]:
    """An HTTP client for a hub. It follows redirects; httpx removes credentials for other hosts.

    It uses the proxies of the environment: the user chose the hub, so its address is trusted.
    """
    timeout = httpx.Timeout(30.0, connect=10.0)
    # No compression: sizes, ranges and digests are those of the uncompressed files.
    headers = {"User-Agent": "qwink", "Accept-Encoding": "identity", **headers}
    with httpx.Client(headers=headers, timeout=timeout, follow_redirects=True) as http:
        yield http


def get_json(http: httpx.Client, url: str, repository: str, revision: str) -> httpx.Response:
    """The response to a GET; its body is valid JSON. Raises DownloadError."""

    def get() -> httpx.Response:
        with network_errors(url):
            response = http.get(url)
            check_status(response, repository, revision)
            return response

    response = retry(get, lambda reason: unreachable(url, reason), tries=3)
    try:
        response.json()
    except ValueError:
        raise DownloadError(
            f"{response.url.host} does not answer like a hub; check for a login page of the "
            "network, and check HF_ENDPOINT or MODELSCOPE_DOMAIN"
        ) from None
    return response


@contextmanager
def network_errors(url: str) -> Iterator[None]:
    """Turns httpx's errors into Interrupted if a retry may help, else into DownloadError."""
    try:
        yield
    except httpx.TransportError as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Interrupted(reason) from error
    except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise DownloadError(f"{url} cannot be followed: {error}") from error


def retry(
    action: Callable[[], T], failure: Callable[[str], DownloadError], tries: int = TRIES
) -> T:
    """Run `action`; repeat it after Interrupted, with doubling pauses, at most `tries` times."""
    failures = 0
    while True:
        try:
            return action()
        except Interrupted as error:
            failures = 1 if error.progressed else failures + 1
            if failures == tries:
                raise failure(str(error)) from error
            time.sleep(max(BACKOFF_S * 2 ** (failures - 1), min(error.pause, _MAX_PAUSE_S)))


def unreachable(url: str, reason: str) -> DownloadError:
    """The error for a hub that does not respond."""
    return DownloadError(
        f"cannot reach {httpx.URL(url).host} ({reason}); check the network, try another hub with "
        f"--from, {BY_HAND}"
    )


def check_status(response: httpx.Response, repository: str, revision: str) -> None:
    """Raises DownloadError for an error status, Interrupted for one that may pass."""
    status = response.status_code
    if status < 400:
        return
    if status in _BUSY:
        pause = response.headers.get("Retry-After", "")
        raise Interrupted(f"status {status}", float(pause) if pause.isdecimal() else 0.0)
    # Name the hub in messages: after a redirect, the response may come from a file server.
    first = (response.history or [response])[0].request
    site = f"{first.url.scheme}://{first.url.netloc.decode('ascii')}"
    has_token = "Authorization" in first.headers
    code = response.headers.get("X-Error-Code", "")  # Hugging Face's
    message = response.headers.get("X-Error-Message", "")
    if status == 403 and code == "" and response.history:
        raise Interrupted("status 403")  # the file server's link expired; the hub gives a new one
    if code == "RevisionNotFound":
        raise DownloadError(f"{repository} has no revision {revision!r}; see {site}/{repository}")
    if status in (401, 403) and first.url.path.startswith("/api/v1/"):  # ModelScope's
        raise DownloadError(
            f"{repository} is private or asks for a licence at {site}; fetch it with "
            "'modelscope download' after logging in there, and give its folder as --model FOLDER"
        )
    if status == 401 and has_token and (code == "" or "credentials" in message):
        raise DownloadError(
            f"{site} does not accept HF_TOKEN; make a new one at {site}/settings/tokens"
        )
    if code == "GatedRepo" or (status == 403 and code == ""):
        token = "" if has_token else f", make a token at {site}/settings/tokens, set HF_TOKEN to it"
        raise DownloadError(
            f"{repository} asks for a licence to be accepted: log in at {site}/{repository}, "
            f"accept it{token}, and pull again"
        )
    if status in (401, 404):  # Hugging Face answers 401 for private and for missing ones
        private = ", and if it is private set HF_TOKEN" if status == 401 else ""
        raise DownloadError(
            f"{repository} is not at {site}; check the name and the revision {revision!r}{private}"
        )
    raise DownloadError(f"{site} answers with status {status} for {repository}; {BY_HAND}")
