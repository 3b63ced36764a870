"""Downloads a checkpoint file by file. Downloads resume, and every file is checked.

Files are downloaded to a hidden staging folder beside the destination. When all files are
complete, the staging folder replaces the destination, so the destination is never incomplete.
Partial files are named by their digest, so a later run resumes them and never mixes two revisions.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from qwink.errors import CheckpointError, DownloadError
from qwink.hub.http import Interrupted, check_status, network_errors, retry
from qwink.hub.listing import Listing, RemoteFile
from qwink.hub.partial import Partial, matches
from qwink.model.config import load_config

_MARK = ".pulled"  # holds the name of the repository; a folder with this file may be replaced
_LOCK = ".lock"
_PROGRESS_BYTES = 1 << 20  # an attempt that received this much counts as progress


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far a download is: bytes present, bytes in total, and the current file."""

    done: int
    total: int
    file: str


OnProgress = Callable[[DownloadProgress], None]


def download(
    http: httpx.Client, listing: Listing, folder: Path, on_progress: OnProgress = lambda _: None
) -> None:
    """Download the checkpoint to `folder`. Files there with the right digest are kept.

    After an interruption, the next call resumes. Raises DownloadError, or CheckpointError if qwink
    cannot use the checkpoint; config.json is checked before the weights are downloaded.
    """
    try:
        if all(matches(folder / file.name, file) for file in listing.files):
            return
        if not _replaceable(listing, folder):
            raise DownloadError(f"{folder} has other files in it; choose another folder")
        staging = staging_folder(folder)
        staging.mkdir(parents=True, exist_ok=True)
        with FileLock(staging / _LOCK, blocking=False):
            _fetch_missing(http, listing, staging, folder, on_progress)
            _replace(listing, staging, folder)
    except Timeout:
        raise DownloadError(f"another process is downloading to {staging}") from None
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            reason = "the disk is full; free some space and run this again, it resumes the download"
        raise DownloadError(f"{folder}: {reason}") from error


def missing_bytes(listing: Listing, folder: Path) -> int:
    """Bytes still to download, judged by the sizes of files."""
    staging, missing = staging_folder(folder), 0
    for file in listing.files:
        places = (staging / file.name, folder / file.name, Partial.path(staging, file))
        present = max(path.stat().st_size if path.is_file() else 0 for path in places)
        missing += file.num_bytes - min(present, file.num_bytes)
    return missing


def staging_folder(folder: Path) -> Path:
    """The folder that holds the files until all are complete."""
    return folder.parent / f".{folder.name}.download"


def _replaceable(listing: Listing, folder: Path) -> bool:
    """Whether `folder` is missing, empty, or an earlier download of the same repository."""
    if not folder.exists():
        return True
    if not folder.is_dir():
        return False
    with suppress(OSError):
        return (folder / _MARK).read_text("utf-8") == listing.repository
    return not any(folder.iterdir())


def _fetch_missing(
    http: httpx.Client, listing: Listing, staging: Path, folder: Path, on_progress: OnProgress
) -> None:
    done, checked = 0, False
    for file in listing.files:  # smallest first, so config.json is checked before the weights
        if file.name.endswith(".safetensors") and not checked:
            _check_config(listing, staging)
            checked = True
        target, existing = staging / file.name, folder / file.name
        if matches(existing, file):
            _link(existing, target)
        elif not matches(target, file):
            _fetch(http, listing, file, staging, partial(_report, on_progress, listing, file, done))
        done += file.num_bytes
        on_progress(DownloadProgress(done, listing.num_bytes, file.name))
    known = {_LOCK, _MARK, *(file.name for file in listing.files)}
    for path in staging.iterdir():
        if path.name not in known:  # left from another revision
            path.unlink()


def _report(
    on_progress: OnProgress, listing: Listing, file: RemoteFile, before: int, num_bytes: int
) -> None:
    on_progress(DownloadProgress(before + num_bytes, listing.num_bytes, file.name))


def _check_config(listing: Listing, staging: Path) -> None:
    try:
        load_config(staging)
    except CheckpointError as error:
        shutil.rmtree(staging, ignore_errors=True)
        reason = str(error).removeprefix(f"{staging}{os.sep}")
        raise CheckpointError(f"qwink cannot use {listing.repository}: {reason}") from None


def _fetch(
    http: httpx.Client,
    listing: Listing,
    file: RemoteFile,
    staging: Path,
    follow: Callable[[int], None],
) -> None:
    """Download one file; retry after interruptions."""
    damaged = False

    def attempt() -> None:
        nonlocal damaged
        if target.num_bytes < file.num_bytes or not target.is_complete():
            _receive(http, listing, target, follow)
        if not target.is_complete():
            target.restart()
            if damaged:  # the second time: the hub's file or digest is wrong
                raise DownloadError(
                    f"{file.name} of {listing.repository} does not have the digest that the hub "
                    "gives for it; try again later, or another hub with --from"
                )
            damaged = True
            raise Interrupted("damaged in transfer")

    def failure(reason: str) -> DownloadError:
        return DownloadError(
            f"{file.name} of {listing.repository} stopped after {target.num_bytes / 1e6:.1f} of "
            f"{file.num_bytes / 1e6:.1f} MB ({reason}); run this again, it resumes the download"
        )

    with Partial(staging, file) as target:
        follow(target.num_bytes)
        retry(attempt, failure)
    target.finish()


def _receive(
    http: httpx.Client, listing: Listing, target: Partial, follow: Callable[[int], None]
) -> None:
    """Append the missing bytes to `target`. Raises Interrupted if the connection breaks."""
    if target.num_bytes >= target.file.num_bytes:
        target.restart()
    start = target.num_bytes
    try:
        headers = {"Range": f"bytes={start}-"} if start else {}
        url = target.file.url
        with network_errors(url), http.stream("GET", url, headers=headers) as response:
            check_status(response, listing.repository, listing.revision)
            sent = response.headers.get("Content-Range", "")
            if start and not (response.status_code == 206 and sent.startswith(f"bytes {start}-")):
                target.restart()  # the server ignores ranges and sends the whole file
            for chunk in response.iter_raw():
                target.write(chunk)
                follow(target.num_bytes)
        if target.num_bytes < target.file.num_bytes:
            raise Interrupted("the connection ended early")
    except Interrupted as error:
        error.progressed = target.num_bytes - start >= _PROGRESS_BYTES
        raise


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # the file system has no hard links
        shutil.copyfile(source, target)


def _replace(listing: Listing, staging: Path, folder: Path) -> None:
    """Rename `staging` to `folder`. If this process is killed here, the next run finishes it."""
    (staging / _MARK).write_text(listing.repository, "utf-8")
    (staging / _LOCK).unlink()
    old = folder.parent / f".{folder.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
