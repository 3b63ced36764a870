"""Tests of the command line, in processes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import PIL.Image
import pytest

from qwink.cli.console import (
    DtypeName,
    EngineName,
    RecipeName,
    TaskName,
    exit_codes,
    format_bytes,
)
from qwink.engine.torch.device import DTYPES
from qwink.export.recipe import RECIPES
from qwink.native import capabilities
from qwink.runtime.engines import ENGINES
from qwink.types import STAGES, TASKS
from tests.conftest import Ran, RunQwink

ROOT = Path(__file__).resolve().parent.parent
SHORT = ("--max-tokens", 8, "--seed", 1)


def assert_fails(ran: Ran, code: int, *words: str) -> None:
    """Assert the exit code, an empty stdout, and one line on stderr with all `words`."""
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1, ran.err
    assert ran.err.startswith("qwink: ")
    for word in words:
        assert word in ran.err


def test_choices_equal_those_of_the_runtime() -> None:
    assert get_args(TaskName) == TASKS
    assert get_args(RecipeName) == tuple(RECIPES)
    assert get_args(EngineName) == ENGINES
    assert get_args(DtypeName) == ("auto", *DTYPES)


# ask


def test_answer_and_remarks_go_to_different_streams(qwink: RunQwink, picture: Path) -> None:
    ran = qwink("ask", picture, "-q", "What is this?", *SHORT)
    assert ran.code == 0, ran.err
    assert ran.out.endswith("\n")
    assert ran.err == (
        "qwink: warning: stopped after 8 tokens (length): --max-tokens allows more\n"
    )
    again = qwink("ask", picture, "-q", "What is this?", *SHORT)
    assert again.out == ran.out


def test_a_default_length_that_cuts_the_answer_is_an_exit_code(
    qwink: RunQwink, picture: Path
) -> None:
    """The random model never ends an answer. A length that the user chose is no error."""
    for options in (["--context", "160"], ["--context", "160", "--continue"]):
        ran = qwink("ask", picture, "-q", "What is this?", *options)
        assert ran.code == 4, ran.err
        assert "the context of 160 is full" in ran.err
    both = qwink("ask", picture, "--continue", "--max-tokens", "9")
    assert_fails(both, 2, "--continue and --max-tokens exclude each other")


def test_json_document_is_complete(qwink: RunQwink, picture: Path) -> None:
    ran = qwink("ask", picture, "--task", "ocr", "--json", *SHORT)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    document = json.loads(ran.out)
    assert document["drafts"].split(":")[0] in ("auto", "off")
    assert set(document) == {
        "text", "boxes", "points", "finish_reason", "model", "engine", "recipe", "kernels",
        "drafts", "usage", "timings", "warnings",
    }  # fmt: skip
    assert document["finish_reason"] == "length"
    assert document["model"] == "tiny"
    assert document["recipe"] == "balanced"
    assert document["usage"]["completion_tokens"] == 8
    assert document["usage"]["image_tokens"] > 0
    timings = document["timings"]
    assert {key for key in timings if key.endswith("_ms")} == {
        *(f"{stage}_ms" for stage in STAGES), "queue_ms", "total_ms", "first_token_ms",
    }  # fmt: skip
    assert set(timings["origins"]) == set(STAGES)
    assert any("ocr" in note for note in timings["notes"])
    assert document["warnings"] == ["stopped after 8 tokens (length): max_tokens allows more"]


def test_timings_are_a_table_on_stderr(qwink: RunQwink, picture: Path) -> None:
    ran = qwink("ask", picture, "-q", "Read the text", "--timings", *SHORT)
    assert ran.code == 0, ran.err
    lines = {line.split("  ")[0]: line for line in ran.err.splitlines()}
    for stage in STAGES:
        assert "computed" in lines[stage]
    assert "total" in lines
    assert "tokens/s" in ran.err
    assert "asks to read text" in ran.err  # why this budget
    assert f"engine onnx, recipe balanced, kernels {capabilities().kernels}" in ran.err


def test_boxes_are_printed_and_drawn(qwink: RunQwink, tmp_path: Path) -> None:
    path, out = ROOT / "examples" / "red-circle.png", tmp_path / "boxes.png"
    question = "Locate the circle."
    ran = qwink("ask", path, "-q", question, "--json", "--draw", out, "--model", "nano")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert [box["label"] for box in document["boxes"]] == ["circle"]
    with PIL.Image.open(path) as original, PIL.Image.open(out) as drawn:
        left, top, right, bottom = document["boxes"][0]["box"]
        assert 0 <= left < right <= original.width
        assert 0 <= top < bottom <= original.height
        assert drawn.size == original.size
        assert drawn.getpixel((left, (top + bottom) // 2)) == (213, 94, 0)


def test_a_drawing_without_boxes_says_so(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "boxes.png"
    ran = qwink("ask", "-", "--draw", out, *SHORT, stdin=picture.read_bytes())
    assert ran.code == 0
    assert f"no boxes or points; {out} is the picture alone" in ran.err
    assert out.stat().st_size > 0
    ran = qwink("ask", picture, picture, "--draw", out, *SHORT)
    assert_fails(ran, 2, "--draw takes one picture")


def test_several_pictures(qwink: RunQwink, picture: Path) -> None:
    one = qwink("ask", picture, "-q", "Hi", "--json", *SHORT)
    two = qwink("ask", picture, picture, "-q", "Hi", "--json", *SHORT)
    assert two.code == 0, two.err
    tokens = json.loads(one.out)["usage"]["image_tokens"]
    assert json.loads(two.out)["usage"]["image_tokens"] == 2 * tokens


def test_picture_from_stdin_and_data_url(qwink: RunQwink, picture: Path) -> None:
    data = picture.read_bytes()
    by_path = qwink("ask", picture, "-q", "Hi", *SHORT)
    by_stdin = qwink("ask", "-", "-q", "Hi", *SHORT, stdin=data)
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    by_url = qwink("ask", url, "-q", "Hi", *SHORT)
    assert by_path == by_stdin == by_url


def test_no_picture_is_plain_chat(qwink: RunQwink) -> None:
    ran = qwink("ask", "-q", "Hello", "--json", *SHORT)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["usage"]["image_tokens"] == 0
    assert document["timings"]["origins"]["encode"] == "absent"


def test_all_options_reach_the_model(qwink: RunQwink, picture: Path) -> None:
    drawing = ("--temperature", 1.5, "--top-p", 0.9, "--top-k", 50, "--min-p", 0.01)
    more = ("--repetition-penalty", 1.1, "--stop", "zz", "--stop", "yy", "--system", "Be brief.")
    sizes = ("--min-pixels", 4096, "--max-pixels", 8192, "--threads", 1, "--context", 200)
    ran = qwink("ask", picture, "-q", "Hi", "--json", *drawing, *more, *sizes, *SHORT)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["usage"]["image_tokens"] <= 8192 // 1024


def test_warnings_go_to_stderr(qwink: RunQwink, tmp_path: Path) -> None:
    frames = [PIL.Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    path = tmp_path / "moving.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    ran = qwink("ask", path, "-q", "Hi", *SHORT)
    assert ran.code == 0
    assert "qwink: warning: " in ran.err
    assert "only the first frame is used" in ran.err


def test_options_in_messages_are_spelt_as_flags(qwink: RunQwink, tmp_path: Path) -> None:
    path = tmp_path / "tall.png"
    PIL.Image.new("RGB", (64, 2048)).save(path)
    ran = qwink("ask", path, "-q", "Hi", "--max-pixels", 8192, *SHORT)
    assert "of its size (64×2048); crop it or raise --max-pixels" in ran.err
    ran = qwink("ask", path, "-q", "Hi", "--max-image-pixels", 1000)
    assert ran.code == 1
    assert "save it smaller or raise --max-image-pixels" in ran.err


def test_many_pictures_are_asked_about_together(qwink: RunQwink, picture: Path) -> None:
    ran = qwink("ask", picture, picture, "-q", "Hi", *SHORT)
    assert "qwink: asking about 2 pictures together, in one question; " in ran.err
    assert "qwink batch" in ran.err


def test_a_question_given_as_a_picture(qwink: RunQwink, picture: Path) -> None:
    ran = qwink("ask", picture, "What is it?")
    assert ran.code == 1
    assert f"qwink ask {picture} -q 'What is it?'" in ran.err
    secret = "iVBORw0KGgo" + "A" * 5000
    ran = qwink("ask", secret, "-q", "Hi")
    assert ran.code == 1
    assert "base64" in ran.err
    assert secret[:20] not in ran.err


def test_full_context_is_named_as_the_reason(qwink: RunQwink) -> None:
    ran = qwink("ask", "-q", "Hi", "--context", 24, "--seed", 1)
    assert ran.code == 4, ran.err
    assert "the context of 24 is full" in ran.err


def test_pictures_that_cannot_be_used(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    text, empty, cut = tmp_path / "notes.txt", tmp_path / "empty.png", tmp_path / "cut.jpg"
    text.write_text("not a picture")
    empty.touch()
    PIL.Image.effect_noise((400, 300), 80).save(cut)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 4])
    assert_fails(qwink("ask", text), 1, "notes.txt", "looks like text")
    assert_fails(qwink("ask", empty), 1, "empty.png", "empty")
    assert_fails(qwink("ask", cut), 1, "cut.jpg", "cannot decode")
    assert_fails(qwink("ask", picture, tmp_path / "gone.png"), 1, "gone.png", "no such file")
    assert_fails(qwink("ask", tmp_path), 1, "is a folder")
    assert_fails(qwink("ask", "-"), 1, "empty")
    assert_fails(qwink("ask", "https://example.com/a.png"), 1, "not fetched")


def test_limit_of_pixels(qwink: RunQwink, picture: Path) -> None:
    assert_fails(qwink("ask", picture, "--max-image-pixels", 10_000), 1, "160×120")
    assert qwink("ask", picture, "--max-image-pixels", 160 * 120, *SHORT).code == 0


def test_wrong_input_is_found_before_the_export(
    qwink: RunQwink, picture: Path, tmp_path: Path
) -> None:
    gone = qwink("ask", tmp_path / "gone.png", home=tmp_path / "home")
    assert_fails(gone, 1, "no such file")
    assert_fails(qwink("ask", picture, "--top-p", 2, home=tmp_path / "home"), 2, "--top-p")
    assert not (tmp_path / "home").exists()


def test_unknown_models(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    assert_fails(qwink("ask", picture, "--model", "nonsense"), 1, "nonsense", "nano")
    hub = str(tmp_path)
    ran = qwink("ask", picture, "--model", "Qwen/None-Such", HF_HUB_CACHE=hub)
    assert_fails(ran, 1, "Qwen/None-Such", "not on this machine")
    assert_fails(qwink("ask", picture, "--model", tmp_path), 1, "config.json")


def test_another_architecture(
    qwink: RunQwink, picture: Path, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    shutil.copytree(tiny_checkpoint[0], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llava"}))
    assert_fails(qwink("ask", picture, "--model", folder), 1, "qwen3_vl", "llava")


@pytest.mark.parametrize(
    "options",
    [
        ("--max-tokens", "0"),
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--top-k", "-1"),
        ("--top-p", "0"),
        ("--min-p", "2"),
        ("--repetition-penalty", "0"),
        ("--stop", ""),
        ("--seed", str(2**64)),
        ("--max-image-pixels", "0"),
        ("--threads", "0"),
        ("--context", "100000000"),
        ("--min-pixels", "90000", "--max-pixels", "40000"),
    ],
)
def test_values_out_of_range(qwink: RunQwink, picture: Path, options: tuple[str, ...]) -> None:
    assert_fails(qwink("ask", picture, *options), 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "a.png", "--task", "guess"),
        ("ask", "a.png", "--recipe", "guess"),
        ("ask", "a.png", "--max-tokens", "many"),
        ("ask", "a.png", "--nonsense"),
        ("export",),
        ("nonsense",),
    ],
)
def test_wrong_usage(qwink: RunQwink, arguments: tuple[str, ...]) -> None:
    ran = qwink(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Usage: qwink" in ran.err
    assert "Traceback" not in ran.err


def test_nothing_asked_is_wrong_usage(qwink: RunQwink, picture: Path) -> None:
    assert_fails(qwink("ask"), 2, "nothing to answer")
    assert_fails(qwink("ask", "-q", " "), 2, "nothing to answer")
    assert_fails(qwink("ask", "-", "-"), 2, "once")


def test_environment_is_checked(qwink: RunQwink, picture: Path) -> None:
    assert_fails(qwink("ask", picture, QWINK_THREADS="many"), 2, "QWINK_THREADS")
    assert_fails(qwink("ask", picture, QWINK_RECIPE="guess"), 2, "guess")


def test_question_longer_than_the_context(qwink: RunQwink) -> None:
    ran = qwink("ask", "-q", "What is the total? " * 2000)
    assert_fails(ran, 1, "tokens", "4095")


def test_a_closed_pipe_ends_the_command_quietly(qwink: RunQwink, tiny_home: Path) -> None:
    shell = 'set -o pipefail; "$0" -m qwink models | true'
    ran = subprocess.run(
        ["bash", "-c", shell, sys.executable],
        env=os.environ | {"QWINK_HOME": str(tiny_home)},
        capture_output=True,
        check=False,
    )
    assert ran.returncode in (0, 128 + signal.SIGPIPE)  # 0: the pipe was still open
    assert ran.stderr == b""


def test_interrupt_ends_quietly(tiny_home: Path, tiny_checkpoint: tuple[Path, Any]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "qwink", "ask", "-", "--model", str(tiny_checkpoint[0])],
        env=os.environ | {"QWINK_HOME": str(tiny_home), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Background jobs of a shell ignore SIGINT, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # A pipe holds 64 kB: when 200 kB have been written, the command is reading stdin.
    assert process.stdin is not None
    process.stdin.write(bytes(200_000))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_os_errors_become_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for error, line in (
        (FileNotFoundError(2, "No such file", "/a/b"), "qwink: /a/b: No such file\n"),
        (MemoryError(), "qwink: not enough memory"),
    ):
        with pytest.raises(SystemExit) as caught, exit_codes():
            raise error
        assert caught.value.code == 1
        assert capsys.readouterr().err.startswith(line)


# export


def test_the_first_use_exports_and_reports_it(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    first = qwink("ask", "-q", "Hi", *SHORT, home=tmp_path)
    assert first.code == 0
    assert "qwink: exporting" in first.err
    assert f"qwink: exported to {tmp_path}" in first.err
    second = qwink("ask", "-q", "Hi", *SHORT, home=tmp_path)
    assert "export" not in second.err
    assert second.out == first.out


def test_export_to_a_folder(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "artifact"
    ran = qwink("export", tiny_checkpoint[0], "--recipe", "exact", "--out", out)
    assert ran.code == 0, ran.err
    assert ran.out == f"{out}\n"
    assert "exported to" in ran.err
    asked = qwink("ask", "-q", "Hi", "--model", out, "--json", *SHORT)
    assert json.loads(asked.out)["recipe"] == "exact"
    mismatch = qwink("ask", "-q", "Hi", "--model", out, "--recipe", "fast")
    assert_fails(mismatch, 2, "exact", "fast")
    assert_fails(qwink("export", out), 1, "an artifact already")


def test_export_for_any_processor(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    source, out = str(tiny_checkpoint[0]), tmp_path / "out"
    ran = qwink("export", source, "--layout", "onnxruntime", "--out", str(out))
    assert ran.code == 0, ran.err
    assert json.loads((out / "manifest.json").read_text())["layout"] == "onnxruntime"
    ran = qwink("export", source, "--layout", "onnxruntime")
    assert ran.code == 2
    assert "--layout needs --out" in ran.err


def test_export_does_not_overwrite(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    precious = tmp_path / "mine"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    for force in ((), ("--force",)):
        ran = qwink("export", tiny_checkpoint[0], "--out", precious, *force)
        assert_fails(ran, 1, "already exists")
    assert [path.name for path in precious.iterdir()] == ["thesis.txt"]

    ours = ("export", tiny_checkpoint[0], "--out", tmp_path / "ours")
    assert qwink(*ours).code == 0
    assert_fails(qwink(*ours), 1, "already exists", "--force")
    assert qwink(*ours, "--recipe", "fast", "--force").code == 0
    manifest = json.loads((tmp_path / "ours" / "manifest.json").read_text())
    assert manifest["recipe"] == "fast"


def test_export_prints_the_command_for_ask(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    assert qwink("export", tiny_checkpoint[0], home=tmp_path).code == 0
    assert "export" not in qwink("ask", "-q", "Hi", *SHORT, home=tmp_path).err
    assert_fails(qwink("export", tiny_checkpoint[0], home=tmp_path), 1, "already exists")
    assert_fails(qwink("export", tmp_path / "gone"), 1, "gone")


def test_export_that_runs_out_of_space_leaves_nothing(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    out = tmp_path / "artifacts" / "tiny"
    ran = qwink("export", tiny_checkpoint[0], "--out", out, limit_kib=200)
    assert ran.code == 1
    assert ran.out == ""
    announcement, error = ran.err.splitlines()
    assert announcement.startswith("qwink: exporting")
    assert error.startswith(f"qwink: {out}: ")
    assert "too large" in error or "full" in error
    assert list(out.parent.iterdir()) == []


def test_terminated_export_leaves_nothing(
    tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    out = tmp_path / "artifacts" / "tiny"
    command = [sys.executable, "-m", "qwink", "export", str(tiny_checkpoint[0]), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.readline()  # the export has begun
    process.terminate()
    process.communicate(timeout=60)
    if process.returncode == 128 + signal.SIGTERM:
        assert list(out.parent.iterdir()) == []
    else:  # the export finished before the signal
        assert process.returncode == 0


# models


def test_models_lists_artifacts_and_recipes(qwink: RunQwink, tiny_home: Path) -> None:
    ran = qwink("models")
    assert ran.code == 0, ran.err
    row = next(line for line in ran.out.splitlines() if line.startswith("tiny "))
    assert row.split()[1] == "balanced"
    assert str(tiny_home / "artifacts") in row
    for recipe in RECIPES.values():
        assert recipe.summary in ran.out
    document = json.loads(qwink("models", "--json").out)
    assert set(document["recipes"]) == set(RECIPES)
    assert "tiny" in [model["name"] for model in document["models"]]


def test_empty_home(qwink: RunQwink, tmp_path: Path) -> None:
    ran = qwink("models", "--check", home=tmp_path / "none")
    assert ran.code == 0
    assert ran.err == ""


def test_check_names_the_damaged_file(qwink: RunQwink, tiny_home: Path, tmp_path: Path) -> None:
    assert qwink("models", "--check").code == 0
    home = tmp_path / "home"
    shutil.copytree(tiny_home, home)
    damaged = min(home.glob("artifacts/*/decode.bin"))  # there may be several artifacts
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert qwink("models", home=home).code == 0
    ran = qwink("models", "--check", home=home)
    assert ran.code == 1
    assert ran.err == f"qwink: {damaged}: damaged; export the checkpoint again\n"
    damaged.unlink()
    ran = qwink("models", home=home)
    assert ran.code == 0
    assert "missing" in ran.err


# help


def test_version_and_help(qwink: RunQwink) -> None:
    from qwink import __version__

    assert qwink("--version").out == f"qwink {__version__}\n"
    assert "ask" in qwink("--help").out
    bare = qwink()
    assert "Usage: qwink" in bare.out + bare.err


def test_help_needs_no_runtime() -> None:
    code = (
        "import sys, qwink.cli; "
        "slow = {'numpy', 'onnxruntime', 'onnx', 'PIL', 'rich', 'tokenizers'} & set(sys.modules); "
        "sys.exit(f'imported for nothing: {slow}' if slow else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_docs_of_the_command_line_are_current() -> None:
    script = ROOT / "scripts" / "make_cli_docs.py"
    ran = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_format_bytes() -> None:
    assert [format_bytes(size) for size in (0, 999, 1500, 12_345_678, 1_640_000_000)] == [
        "0 B", "999 B", "1.5 kB", "12 MB", "1.6 GB",
    ]  # fmt: skip
