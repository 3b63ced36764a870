"""Installation of peers; `tests/lab/peers` covers what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import install
from qwink.lab.peers.contenders import installed


def test_install_refuses_a_folder_that_is_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        install.main(["openvino", f"--checkpoint={tmp_path}", f"--home={tmp_path}"])
    assert "no checkpoint" in capsys.readouterr().err
    assert installed("openvino", tmp_path)[0] is None
