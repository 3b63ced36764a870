"""Talking to a hub: what its refusals and a missing network mean, in words that lead on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx

from qwink.errors import DownloadError

TRIES = 5
BACKOFF_S = 1.0  # before the second try; doubles from try to try
_PATIENCE_S = 60.0  # the longest pause a hub may ask for
_BUSY = (408, 425, 429, 500, 502, 503, 504)
BY_HAND = "or copy its files into a folder by other means and give that folder as --model FOLDER"

T = TypeVar("T")


class Interrupted(Exception):
    """Another try may help. `pause` is what the hub asked for, in seconds.

    `progressed`: this try brought something, and so does not count as one of a few.
    """

    def __init__(self, why: str, pause: float = 0.0, progressed: bool = False) -> None:
        super().__init__(why)
        self.pause, self.progressed = pause, progressed


@contextmanager
def client(headers: dict[str, str]) -> Iterator[httpx.Client]:
    """Follows redirects; httpx keeps credentials from other hosts than the first.

    Proxies of the environment are used: the hub is the user's own choice.
    """
    timeout = httpx.Timeout(30.0, connect=10.0)
    # Sizes, ranges and digests are of the files as they are.
    headers = {"User-Agent": "qwink", "Accept-Encoding": "identity", **headers}
    with httpx.Client(headers=headers, timeout=timeout, follow_redirects=True) as http:
        yield http


def ask(http: httpx.Client, url: str, repository: str, revision: str) -> httpx.Response:
    """One answer in JSON. Raises DownloadError."""

    def get() -> httpx.Response:
        with problems(url):
            response = http.get(url)
            check(response, repository, revision)
            return response

    response = persist(get, lambda why: unreachable(url, why), tries=3)
    try:
        response.json()
    except ValueError:
        raise DownloadError(
            f"{response.url.host} does not answer as a hub does; is there a login page between, "
            "or are HF_ENDPOINT or MODELSCOPE_DOMAIN not what they should be?"
        ) from None
    return response


@contextmanager
def problems(url: str) -> Iterator[None]:
    """Turns what may pass by itself into Interrupted. Raises DownloadError for what does not."""
    try:
        yield
    except httpx.TransportError as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise Interrupted(why) from error
    except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise DownloadError(f"{url} leads nowhere: {error}") from error


def persist(
    action: Callable[[], T], failure: Callable[[str], DownloadError], tries: int = TRIES
) -> T:
    """Repeat `action` while it is interrupted, with longer and longer pauses."""
    failures = 0
    while True:
        try:
            return action()
        except Interrupted as error:
            failures = 1 if error.progressed else failures + 1
            if failures == tries:
                raise failure(str(error)) from error
            time.sleep(max(BACKOFF_S * 2 ** (failures - 1), min(error.pause, _PATIENCE_S)))


def unreachable(url: str, why: str) -> DownloadError:
    """Nothing was heard from the hub."""
    return DownloadError(
        f"cannot reach {httpx.URL(url).host} ({why}); check the network, try another hub with "
        f"--from, {BY_HAND}"
    )


def check(response: httpx.Response, repository: str, revision: str) -> None:
    """Raises DownloadError for a refusal, Interrupted for one that may pass."""
    status = response.status_code
    if status < 400:
        return
    if status in _BUSY:
        pause = response.headers.get("Retry-After", "")
        raise Interrupted(f"status {status}", float(pause) if pause.isdecimal() else 0.0)
    # Of the request that was made; after a redirect it may be a file server's.
    first = (response.history or [response])[0].request
    site = f"{first.url.scheme}://{first.url.netloc.decode('ascii')}"
    known = "Authorization" in first.headers
    code = response.headers.get("X-Error-Code", "")  # Hugging Face's
    message = response.headers.get("X-Error-Message", "")
    if status == 403 and code == "" and response.history:
        raise Interrupted("status 403")  # of a file server: the link expired, the hub has others
    if code == "RevisionNotFound":
        raise DownloadError(f"{repository} has no revision {revision!r}; see {site}/{repository}")
    if status in (401, 403) and first.url.path.startswith("/api/v1/"):  # ModelScope's
        raise DownloadError(
            f"{repository} is private or asks for a licence at {site}; fetch it with "
            "'modelscope download' after logging in there, and give its folder as --model FOLDER"
        )
    if status == 401 and known and (code == "" or "credentials" in message):
        raise DownloadError(
            f"{site} does not accept HF_TOKEN; make a new one at {site}/settings/tokens"
        )
    if code == "GatedRepo" or (status == 403 and code == ""):
        token = "" if known else f", make a token at {site}/settings/tokens, set HF_TOKEN to it"
        raise DownloadError(
            f"{repository} asks for a licence to be accepted: log in at {site}/{repository}, "
            f"accept it{token}, and pull again"
        )
    if status in (401, 404):  # Hugging Face answers 401 to hide whether there is a private one
        private = ", and if it is private set HF_TOKEN" if status == 401 else ""
        raise DownloadError(
            f"{repository} is not at {site}; check the name and the revision {revision!r}{private}"
        )
    raise DownloadError(f"{site} answers with status {status} for {repository}; {BY_HAND}")
