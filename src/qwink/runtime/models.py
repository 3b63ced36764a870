"""Model references → loaded models. A reference is a name, a folder or a hub id."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from filelock import FileLock

from qwink.cache.address import StoreOptions
from qwink.cache.embeddings import Shared, Store
from qwink.cache.shared import SharedImages, open_store
from qwink.errors import ArtifactError, ModelNotFound, OptionError
from qwink.export.identity import Report, artifact_id
from qwink.export.recipe import Recipe, get_recipe
from qwink.export.target import choose_target
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.tokenizer import Tokenizer
from qwink.model.artifact import Artifact, is_artifact
from qwink.model.config import load_config, load_generation_defaults
from qwink.model.weights import fingerprint
from qwink.runtime.drafting import Speculate
from qwink.runtime.engines import EngineOptions, choose_engine, open_engine
from qwink.runtime.memory import Memory
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.settings import Settings, expand_user

WAY_OUT = "set QWINK_HOME to another folder"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def load(
    model: str | Path | None = None,
    *,
    recipe: str | None = None,
    engine: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    quantize: str | None = None,
    threads: int | None = None,
    context: int | None = None,
    limits: Limits | None = None,
    memory: Memory | None = None,
    store: Store | None = None,
    shared: Shared | StoreOptions | str | None = None,
    speculate: Speculate = "auto",
    settings: Settings | None = None,
    report: Report = lambda _: None,
) -> VLM:
    """Load a model and keep it in memory.

    - `model`: "nano", the folder of a checkpoint or of an artifact, or the id of a checkpoint that
      `qwink pull` or Hugging Face's tools downloaded. Nothing is downloaded. A checkpoint is
      exported on first use, which takes minutes for a 2B model. Default: `QWINK_MODEL`, or nano.
    - `recipe`: "exact", "quality", "balanced" (default), "fast" or "small": precision and
      quantization of the onnx engine.
    - `engine`: "onnx", "torch", or "auto" (default): torch if there are a GPU and PyTorch.
    - `device` ("cuda:1"), `dtype` ("bfloat16") and `quantize` ("int8"): for the torch engine.
    - `threads`: threads of one computation. Default: the number of physical cores.
    - `context`: most tokens of prompt and answer together. Default: 16384, or fewer if the model
      or the memory allows fewer.
    - `limits`: how many requests run and wait.
    - `memory`: most bytes of keys and values, and of encoded images.
    - `store`: keeps encoded images beyond this process (`qwink.cache.disk.DiskStore`).
    - `shared`: keeps them for several machines: the URL of a Redis or Valkey, or
      `qwink.cache.address.StoreOptions`; it is closed with the model. Default:
      `QWINK_STORE`, or none.
    - `speculate`: "auto" (default) drafts tokens where that is exact and saves time, "off" drafts
      none. The answers are the same.
    - `settings`: defaults in place of those from environment variables (`qwink.settings.Settings`).
    - `report`: is called with the progress of an export (`qwink.export.identity.Progress`).
    - `speculate`: "auto" (default): tokens are drafted where that is exact and saves time; "off":
      none are. The answers are the same.

    Raises ModelNotFound, CheckpointError, ArtifactError, OptionError, OutOfMemory.

    ```python
    import qwink

    vlm = qwink.load("nano")
    ```
    """
    settings = settings or Settings.from_environment()
    options = EngineOptions.resolve(
        settings,
        engine=engine,
        recipe=recipe,
        device=device,
        dtype=dtype,
        quantize=quantize,
        threads=threads,
    )
    kept = _shared(shared, settings)  # it connects while the model is loaded
    try:
        folder = find_model(model or settings.model, options, settings, report)
        return VLM(open_model(folder, options), context, limits, memory, store, speculate, kept)
    except BaseException:
        if kept is not None:
            kept.close()
        raise


def _shared(shared: Shared | StoreOptions | str | None, settings: Settings) -> Shared | None:
    """The shared store of the arguments or, without one, of the settings. Raises OptionError."""
    if shared is None or isinstance(shared, str):
        return open_store(settings, shared)
    return SharedImages.open(shared) if isinstance(shared, StoreOptions) else shared


def open_model(folder: Path, options: EngineOptions) -> Model:
    """The model in an artifact's or, for torch, a checkpoint's folder. Raises as `load` does."""
    engine = open_engine(folder, options)
    return Model(
        engine.name,
        engine,
        Tokenizer.load(folder),
        ChatTemplate.load(folder),
        load_generation_defaults(folder).sampling(),
    )


def find_model(
    model: str | Path,
    options: EngineOptions,
    settings: Settings,
    report: Report = lambda _: None,
) -> Path:
    """The folder that the engine chosen by the options runs: a checkpoint's or an artifact's.

    A checkpoint is exported into the cache on first use where that is onnx.
    """
    folder = find_folder(model, settings)
    # A GPU would not make up for the time that PyTorch takes to start.
    if choose_engine(options, folder, prefer_onnx=model == "nano") == "torch":
        return folder
    return find_artifact(model, options.recipe, settings, report).folder


def find_artifact(
    model: str | Path, recipe: str | None, settings: Settings, report: Report = lambda _: None
) -> Artifact:
    """The artifact of a model reference; a checkpoint is exported into the cache on first use."""
    folder = find_folder(model, settings)
    if is_artifact(folder):
        artifact = Artifact.load(folder)
        found = artifact.manifest.recipe
        if recipe is not None and recipe != found:
            raise OptionError(
                f"{folder} is an artifact of recipe {found!r}, not {recipe!r}; "
                "export its checkpoint with that recipe, or leave the recipe out"
            )
        return artifact
    return _exported(folder, recipe or settings.recipe, settings, report)


def find_folder(model: str | Path, settings: Settings) -> Path:
    """The folder, of a checkpoint or an artifact, that a model reference leads to.

    Raises ModelNotFound.
    """
    if model == "nano":
        return Path(str(files("qwink") / "assets" / "nano"))
    folder = expand_user(model)
    return folder if folder.is_dir() else _from_hub_cache(str(model), settings)


def checkpoint_folder(hub_id: str, settings: Settings) -> Path:
    """Where a checkpoint belongs that comes from a hub."""
    return settings.checkpoints / hub_id.replace("/", "--")


def artifact_folder(checkpoint: Path, recipe: Recipe, settings: Settings) -> Path:
    """Where in the cache the artifact of a checkpoint belongs. Raises CheckpointError."""
    identity = artifact_id(fingerprint(checkpoint), recipe, choose_target(recipe))
    return settings.artifacts / f"{checkpoint.name}-{recipe.name}-{identity[:12]}"


def _exported(checkpoint: Path, name: str, settings: Settings, report: Report) -> Artifact:
    recipe = get_recipe(name)
    load_config(checkpoint)  # a checkpoint of another kind is told before its weights are
    out = artifact_folder(checkpoint, recipe, settings)
    with suppress(ArtifactError):  # not there, damaged, or of an older format: make it anew
        return Artifact.load(out)
    from qwink.export.build import export  # what only an export needs takes a while to import

    try:
        locks = settings.home / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{out.name}.lock"):  # another process may be making it
            with suppress(ArtifactError):
                return Artifact.load(out)
            for leftover in (out, *out.parent.glob(f".{out.name}.*/")):
                shutil.rmtree(leftover, ignore_errors=True)
            return export(checkpoint, out, recipe, report, way_out=WAY_OUT)
    except (OSError, NotImplementedError) as error:  # the latter from a file system without locks
        reason = getattr(error, "strerror", None) or error
        raise ArtifactError(f"{out}: cannot be written: {reason}; {WAY_OUT}") from error


def _from_hub_cache(model: str, settings: Settings) -> Path:
    """The folder in which `qwink pull`, or Hugging Face's tools, keep a checkpoint."""
    if _HUB_ID.fullmatch(model):
        pulled = checkpoint_folder(model, settings)
        if pulled.is_dir():
            return pulled
        repository = settings.hub_cache / f"models--{model.replace('/', '--')}"
        try:
            revision = (repository / "refs" / "main").read_text("utf-8").strip()
        except OSError:
            revision = ""
        if revision and (repository / "snapshots" / revision).is_dir():
            return repository / "snapshots" / revision
        raise ModelNotFound(
            f"{model} is not on this machine; download it with 'qwink pull {model}', "
            "or give a folder with its files as the model"
        )
    raise ModelNotFound(
        f"no model {model!r}; give 'nano', a folder with a checkpoint or artifact, "
        "or a hub id such as Qwen/Qwen3-VL-2B-Instruct"
    )
