"""Downloading a checkpoint: file by file, resumable, each checked, all appearing at once.

Files gather in a hidden folder beside the destination, which becomes the destination when the
last one is complete: what is there is whole. Partial files are named after their content, so that
a later run goes on with them and never mixes two revisions.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from qwink.errors import CheckpointError, DownloadError
from qwink.hub.http import Interrupted, check, persist, problems
from qwink.hub.listing import Listing, RemoteFile
from qwink.hub.partial import Partial, is_right
from qwink.model.config import load_config

if sys.platform == "win32":

    def _lock(path: Path) -> Iterator[None]:
        yield

else:
    import fcntl

    def _lock(path: Path) -> Iterator[None]:
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DownloadError(f"another process is downloading to {path.parent}") from None
            yield


_alone = contextmanager(_lock)
_MARK = ".pulled"  # holds the repository's name: a folder that has it may be replaced
_LOCK = ".lock"
_MEANINGFUL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a download is: bytes here of all, and the file under way."""

    done: int
    total: int
    file: str


Report = Callable[[Progress], None]


def download(
    http: httpx.Client, listing: Listing, folder: Path, report: Report = lambda _: None
) -> None:
    """Have the checkpoint in `folder`. What is there already and right is not fetched again.

    Raises DownloadError, or CheckpointError if it is not one that qwink can use, which is found
    out before the weights are fetched. Interrupted, it goes on where it was when called again.
    """
    try:
        if all(is_right(folder / file.name, file) for file in listing.files):
            return
        if not _replaceable(listing, folder):
            raise DownloadError(f"{folder} holds something else; choose another folder")
        staging = staging_folder(folder)
        staging.mkdir(parents=True, exist_ok=True)
        with _alone(staging / _LOCK):
            _gather(http, listing, staging, folder, report)
            _move(listing, staging, folder)
    except OSError as error:
        why = f"cannot be written: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            why = "the disk is full; free some space and run this again, it goes on from there"
        raise DownloadError(f"{folder}: {why}") from error


def missing_bytes(listing: Listing, folder: Path) -> int:
    """What is still to be fetched, judged by sizes."""
    staging, missing = staging_folder(folder), 0
    for file in listing.files:
        places = (staging / file.name, folder / file.name, Partial.path(staging, file))
        here = max(path.stat().st_size if path.is_file() else 0 for path in places)
        missing += file.num_bytes - min(here, file.num_bytes)
    return missing


def staging_folder(folder: Path) -> Path:
    """Where files gather until all are there."""
    return folder.parent / f".{folder.name}.download"


def _replaceable(listing: Listing, folder: Path) -> bool:
    """Whether nothing is lost: no folder, an empty one, or an earlier download of the same."""
    if not folder.exists():
        return True
    if not folder.is_dir():
        return False
    with suppress(OSError):
        return (folder / _MARK).read_text("utf-8") == listing.repository
    return not any(folder.iterdir())


def _gather(
    http: httpx.Client, listing: Listing, staging: Path, folder: Path, report: Report
) -> None:
    done, checked = 0, False
    for file in listing.files:  # the smallest first
        if file.name.endswith(".safetensors") and not checked:
            _check_config(listing, staging)
            checked = True
        target, here = staging / file.name, folder / file.name
        if is_right(here, file):
            _link(here, target)
        elif not is_right(target, file):
            _fetch(http, listing, file, staging, partial(_follow, report, listing, file, done))
        done += file.num_bytes
        report(Progress(done, listing.num_bytes, file.name))
    known = {_LOCK, _MARK, *(file.name for file in listing.files)}
    for path in staging.iterdir():
        if path.name not in known:  # of another revision
            path.unlink()


def _follow(report: Report, listing: Listing, file: RemoteFile, before: int, here: int) -> None:
    report(Progress(before + here, listing.num_bytes, file.name))


def _check_config(listing: Listing, staging: Path) -> None:
    try:
        load_config(staging)
    except CheckpointError as error:
        shutil.rmtree(staging, ignore_errors=True)
        why = str(error).removeprefix(f"{staging}{os.sep}")
        raise CheckpointError(f"{listing.repository} cannot be used: {why}") from None


def _fetch(
    http: httpx.Client,
    listing: Listing,
    file: RemoteFile,
    staging: Path,
    follow: Callable[[int], None],
) -> None:
    """One file, in as many attempts as it takes."""
    spoilt = False

    def attempt() -> None:
        nonlocal spoilt
        if target.num_bytes < file.num_bytes or not target.is_right():
            _receive(http, listing, target, follow)
        if not target.is_right():
            target.restart()
            if spoilt:  # twice is no accident
                raise DownloadError(
                    f"{file.name} of {listing.repository} does not have the digest that the hub "
                    "says; try again later, or another hub with --from"
                )
            spoilt = True
            raise Interrupted("damaged on its way")

    def failure(why: str) -> DownloadError:
        return DownloadError(
            f"{file.name} of {listing.repository} broke off after {target.num_bytes / 1e6:.1f} of "
            f"{file.num_bytes / 1e6:.1f} MB ({why}); run this again, it goes on from there"
        )

    with Partial(staging, file) as target:
        follow(target.num_bytes)
        persist(attempt, failure)
    target.finish()


def _receive(
    http: httpx.Client, listing: Listing, target: Partial, follow: Callable[[int], None]
) -> None:
    """What is still missing, until it is there or the connection breaks."""
    if target.num_bytes >= target.file.num_bytes:
        target.restart()
    start = target.num_bytes
    try:
        headers = {"Range": f"bytes={start}-"} if start else {}
        url = target.file.url
        with problems(url), http.stream("GET", url, headers=headers) as response:
            check(response, listing.repository, listing.revision)
            given = response.headers.get("Content-Range", "")
            if start and not (response.status_code == 206 and given.startswith(f"bytes {start}-")):
                target.restart()  # it knows no ranges and sends all
            for chunk in response.iter_raw():
                target.write(chunk)
                follow(target.num_bytes)
        if target.num_bytes < target.file.num_bytes:
            raise Interrupted("the connection ended early")
    except Interrupted as error:
        error.progressed = target.num_bytes - start >= _MEANINGFUL_BYTES
        raise


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without
        shutil.copyfile(source, target)


def _move(listing: Listing, staging: Path, folder: Path) -> None:
    """Make what was gathered the folder. Killed in between, the next run does the rest."""
    (staging / _MARK).write_text(listing.repository, "utf-8")
    (staging / _LOCK).unlink()
    old = folder.parent / f".{folder.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
