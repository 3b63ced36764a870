"""Lists the files of a checkpoint on a hub: names, sizes, digests and URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote, urlsplit

import httpx

from qwink.errors import CheckpointError, DownloadError
from qwink.hub.http import get_json
from qwink.model.artifact import COPIED_FILES

# Weight files at the top of the repository. Other formats (pickles, GGUF) are not downloaded.
_WEIGHTS = re.compile(r"\w[\w.-]*\.safetensors(\.index\.json)?")
_REQUIRED = ("config.json", "tokenizer.json")
_REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file. `digest` is the SHA-256 of its content, or Git's SHA-1 (kind "git"), in hex."""

    name: str
    num_bytes: int
    url: str
    kind: Literal["sha256", "git"] | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one checkpoint at one revision, smallest first."""

    repository: str
    revision: str
    files: tuple[RemoteFile, ...]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)


class Hub(Protocol):
    """A server that offers checkpoints."""

    endpoint: str

    @property
    def headers(self) -> dict[str, str]: ...

    def find(self, http: httpx.Client, repository: str, revision: str | None = None) -> Listing:
        """The files to download. Raises DownloadError, or CheckpointError if files are missing."""
        ...


class HuggingFace:
    """Hugging Face's hub, or a mirror. Private and licensed checkpoints need a `token`."""

    def __init__(self, endpoint: str, token: str | None = None) -> None:
        self.endpoint, self._token = endpoint, token

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def find(self, http: httpx.Client, repository: str, revision: str | None = None) -> Listing:
        _check_name(repository)
        api = f"{self.endpoint}/api/models/{repository}"
        wanted = revision or "main"
        found = get_json(http, f"{api}/revision/{quote(wanted, safe='')}", repository, wanted)
        # List and download by commit, so that all files belong to the same one.
        commit = _text(found.json(), "sha")
        tree, files = f"{api}/tree/{quote(commit, safe='')}", []
        query: str | None = ""
        while query is not None:
            page = get_json(http, tree + query, repository, wanted)
            files += [self._file(repository, commit, entry) for entry in _list(page.json())]
            # Take only the query of the link: a mirror may link to the original hub, and the token
            # must go to this host only.
            more = page.links.get("next", {}).get("url")
            query = f"?{urlsplit(more).query}" if more else None
        return _listing(repository, commit, [file for file in files if file])

    def _file(self, repository: str, commit: str, entry: Any) -> RemoteFile | None:
        if _text(entry, "type") != "file":
            return None
        name = _text(entry, "path")
        url = f"{self.endpoint}/{repository}/resolve/{commit}/{quote(name)}"
        large = entry.get("lfs")
        if large:
            return RemoteFile(name, _size(large, "size"), url, "sha256", _text(large, "oid"))
        return RemoteFile(name, _size(entry, "size"), url, "git", _text(entry, "oid"))


class ModelScope:
    """ModelScope's hub. It needs no token."""

    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def find(self, http: httpx.Client, repository: str, revision: str | None = None) -> Listing:
        _check_name(repository)
        wanted = revision or "master"
        api = f"{self.endpoint}/api/v1/models/{repository}/repo"
        query = f"Revision={quote(wanted, safe='')}"
        page = get_json(http, f"{api}/files?{query}&Recursive=False", repository, wanted).json()
        # ModelScope answers 200 even for errors; the field Code has the status.
        if not isinstance(page, dict) or page.get("Code") != 200:
            reason = page.get("Message") if isinstance(page, dict) else page
            raise DownloadError(f"{repository}, {wanted}: ModelScope says {str(reason)[:200]!r}")
        entries = page.get("Data")
        files = []
        for entry in _list(entries.get("Files") if isinstance(entries, dict) else None):
            if _text(entry, "Type") == "blob":
                name, digest = _text(entry, "Path"), str(entry.get("Sha256") or "")
                url = f"{api}?{query}&FilePath={quote(name, safe='')}"
                kind: Literal["sha256"] | None = "sha256" if digest else None
                files.append(RemoteFile(name, _size(entry, "Size"), url, kind, digest))
        return _listing(repository, wanted, files)


def _check_name(repository: str) -> None:
    if not _REPOSITORY.fullmatch(repository):
        raise DownloadError(
            f"{repository!r} is not a repository name; give one like Qwen/Qwen3-VL-2B-Instruct"
        )


def _listing(repository: str, revision: str, files: Iterable[RemoteFile]) -> Listing:
    wanted = [file for file in files if file.name in COPIED_FILES or _WEIGHTS.fullmatch(file.name)]
    names = {file.name for file in wanted}
    missing = [name for name in _REQUIRED if name not in names]
    if not any(name.endswith(".safetensors") for name in names):
        missing.append("*.safetensors")
    if missing:
        raise CheckpointError(
            f"{repository} has no {' and no '.join(missing)}; "
            "name the original checkpoint, such as Qwen/Qwen3-VL-2B-Instruct"
        )
    wanted.sort(key=lambda file: (file.num_bytes, file.name))
    return Listing(repository, revision, tuple(wanted))


def _text(entry: Any, key: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str):
        raise _missing_field(key)
    return value


def _size(entry: Any, key: str) -> int:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, int) or value < 0:
        raise _missing_field(key)
    return value


def _list(entries: Any) -> list[Any]:
    if not isinstance(entries, list):
        raise _missing_field("files")
    return entries


def _missing_field(what: str) -> DownloadError:
    return DownloadError(f"the hub's answer lacks {what!r}; check HF_ENDPOINT or MODELSCOPE_DOMAIN")
