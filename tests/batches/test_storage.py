"""Pictures by the URIs of file systems that pyarrow reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.batches.batch import batch
from qwink.batches.storage import is_stored, read_stored, stored_files
from qwink.errors import ImageError, OptionError
from qwink.runtime.vlm import VLM
from tests.batches.conftest import COLOURS, draw


def test_which_paths_are_stored() -> None:
    assert is_stored("s3://bucket/scans/1.png")
    assert is_stored("FILE:///scans")
    assert not is_stored("https://example.org/1.png")
    assert not is_stored("scans/s3/1.png")


def test_folders_are_listed_as_folders_on_disk_are(folder: Path) -> None:
    draw(folder / "below" / "more.png", "red")
    (folder / "notes.txt").write_text("nothing")
    uri = folder.as_uri()
    wanted = [f"{uri}/{number}.png" for number in range(len(COLOURS))]
    assert list(stored_files(uri, recursive=False)) == wanted
    assert list(stored_files(uri + "/", recursive=True)) == [*wanted, f"{uri}/below/more.png"]
    assert list(stored_files(wanted[0], recursive=True)) == wanted[:1]


def test_what_is_not_there(folder: Path) -> None:
    uri = folder.as_uri() + "/none.png"
    with pytest.raises(OptionError, match="nothing at"):
        list(stored_files(uri, recursive=False))
    with pytest.raises(ImageError, match="cannot read"):
        read_stored(uri)


def test_a_batch_of_stored_pictures(nano: VLM, folder: Path) -> None:
    lost = f"{folder.as_uri()}/lost.png"
    items = [folder.as_uri(), {"image": lost, "id": "lost"}]
    rows = {row.id: row for row in batch(items, "Describe this picture.", model=nano)}
    assert rows.pop("lost").error_type == "ImageError"
    paths = batch([str(folder)], "Describe this picture.", model=nano)
    assert {Path(name).name: row.answer for name, row in rows.items()} == {
        Path(row.id).name: row.answer for row in paths
    }
