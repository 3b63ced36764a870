"""Reads a checkpoint's configuration: shapes, token ids, preprocessing, generation defaults.

Supports every dense Qwen3-VL checkpoint, in the published format or as transformers 5 writes it.
A missing or invalid value raises a CheckpointError that names the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qwink.model.fields import Fields
from qwink.types import SamplingParams

# Picture areas in pixels from Qwen3-VL's published config; used if a checkpoint gives none.
_MIN_PIXELS, _MAX_PIXELS = 65_536, 16_777_216


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """Shape of the vision encoder. DeepStack takes the outputs of `deepstack_layers`, from 0."""

    depth: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    patch_size: int  # pixels
    temporal_patch_size: int  # frames
    merge_size: int  # merge_size × merge_size patches become one token
    in_channels: int
    num_position_embeddings: int  # a square grid, interpolated to the size of each image
    out_hidden_size: int
    deepstack_layers: tuple[int, ...]
    hidden_act: Literal["gelu_pytorch_tanh"] = "gelu_pytorch_tanh"
    layer_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def num_parts(self) -> int:
        """Into how many parts an artifact's encoder is divided: patches, layers, taps, merger."""
        return 1 + self.depth + len(self.deepstack_layers) + 1


@dataclass(frozen=True, slots=True)
class TextConfig:
    """Shape of the text model. `mrope_section` (time, height, width) sums to `head_dim` / 2."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    mrope_section: tuple[int, int, int]
    max_position_embeddings: int
    hidden_act: Literal["silu"] = "silu"
    tie_word_embeddings: bool = True
    attention_bias: bool = False


@dataclass(frozen=True, slots=True)
class PreprocessorConfig:
    """Limits of an image's area in pixels; mean and standard deviation of its channels."""

    min_pixels: int = _MIN_PIXELS
    max_pixels: int = _MAX_PIXELS
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """The checkpoint's sampling parameters; neutral values for those it does not set."""

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    eos_token_ids: tuple[int, ...] = ()

    def sampling(self, max_tokens: int = 512) -> SamplingParams:
        """These defaults as SamplingParams; greedy (temperature 0) unless `do_sample`."""
        if not self.do_sample:
            return SamplingParams(max_tokens, repetition_penalty=self.repetition_penalty)
        return SamplingParams(
            max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
        )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a checkpoint. `name` is for display; it is not unique."""

    vision: VisionConfig
    text: TextConfig
    preprocessor: PreprocessorConfig
    image_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int
    eos_token_ids: tuple[int, ...]
    name: str


def load_config(folder: Path | str) -> ModelConfig:
    """Reads config.json, preprocessor_config.json and the end tokens of generation_config.json.

    Raises CheckpointError: a file is missing or damaged, a key is missing or out of range, or
    the checkpoint is of another architecture.
    """
    folder = Path(folder)
    root = Fields.read(folder / "config.json")
    _check_architecture(root)
    text, vision = _text(root), _vision(root.section("vision_config"))
    if vision.out_hidden_size != text.hidden_size:
        raise root.error(
            f"vision_config.out_hidden_size is {vision.out_hidden_size} but "
            f"text_config.hidden_size is {text.hidden_size}; they should be equal"
        )
    if len(vision.deepstack_layers) > text.num_layers:
        raise root.error("vision_config.deepstack_visual_indexes outnumber the text layers")
    ids = {
        key: root.integer(key, minimum=0)
        for key in ("image_token_id", "vision_start_token_id", "vision_end_token_id")
    }
    for key, token in ids.items():
        if token >= text.vocab_size:
            raise root.error(f"{key} is {token}, beyond the vocabulary of {text.vocab_size}")
    eos = (
        load_generation_defaults(folder).eos_token_ids
        or root.token_ids("eos_token_id")
        or root.section("text_config").token_ids("eos_token_id")
    )
    if not eos:
        raise root.error("eos_token_id is missing here and in generation_config.json")
    return ModelConfig(
        vision, text, _preprocessor(folder, vision), **ids, eos_token_ids=eos, name=_name(folder)
    )


def load_generation_defaults(folder: Path | str) -> GenerationDefaults:
    """Reads generation_config.json; returns neutral defaults if the file is missing.

    Raises CheckpointError: the file is damaged or a value is out of range.
    """
    path = Path(folder) / "generation_config.json"
    if not path.is_file():
        return GenerationDefaults()
    section = Fields.read(path)
    return GenerationDefaults(
        do_sample=section.flag("do_sample", default=False),
        temperature=section.number("temperature", default=1.0, allow_zero=True),
        top_k=section.integer("top_k", default=0, minimum=0),
        top_p=section.number("top_p", default=1.0),
        repetition_penalty=section.number("repetition_penalty", default=1.0),
        eos_token_ids=section.token_ids("eos_token_id"),
    )


def _check_architecture(root: Fields) -> None:
    kind = root.values.get("model_type")
    if kind == "qwen3_vl_moe":
        raise root.error(
            "this is qwen3_vl_moe, a mixture-of-experts model: not supported, "
            "use a dense Qwen3-VL (2B, 4B, 8B, 32B)"
        )
    if kind != "qwen3_vl":
        raise root.error(f"model_type should be 'qwen3_vl', found {kind!r}")
    quantization = root.values.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise root.error(
            f"the checkpoint is quantised ({method or 'quantization_config'}): not supported, "
            "use the bfloat16 one"
        )


def _text(root: Fields) -> TextConfig:
    section = root.section("text_config")
    # transformers 5 moved rope_theta and rope_scaling into rope_parameters.
    rope = section.section("rope_parameters" if section.has("rope_parameters") else "rope_scaling")
    rope.choice("rope_type" if rope.has("rope_type") else "type", "default", default="default")
    if not rope.flag("mrope_interleaved", default=True):
        raise rope.error("mrope_interleaved should be true: the sections of Qwen3-VL interleave")
    head_dim = section.integer("head_dim")
    mrope = rope.integers("mrope_section", length=3)
    if 2 * sum(mrope) != head_dim:
        raise rope.error(f"mrope_section should sum to head_dim / 2 = {head_dim / 2:g}: {mrope}")
    num_heads = section.integer("num_attention_heads")
    num_kv_heads = section.integer("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise section.error(f"{num_heads} query heads do not divide into {num_kv_heads} KV heads")
    # The top level wins, as in transformers; older files have the key in text_config only.
    tied = root if root.has("tie_word_embeddings") else section
    return TextConfig(
        num_layers=section.integer("num_hidden_layers"),
        hidden_size=section.integer("hidden_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=section.integer("intermediate_size"),
        vocab_size=section.integer("vocab_size"),
        rms_norm_eps=section.number("rms_norm_eps"),
        rope_theta=(rope if rope.has("rope_theta") else section).number("rope_theta"),
        mrope_section=(mrope[0], mrope[1], mrope[2]),
        max_position_embeddings=section.integer("max_position_embeddings"),
        hidden_act=section.choice("hidden_act", "silu"),
        tie_word_embeddings=tied.flag("tie_word_embeddings", default=False),
        attention_bias=section.flag("attention_bias", default=False),
    )


def _vision(section: Fields) -> VisionConfig:
    depth, num_heads = section.integer("depth"), section.integer("num_heads")
    hidden_size = section.integer("hidden_size")
    if hidden_size % (4 * num_heads):
        raise section.error(f"hidden_size {hidden_size} should divide into {num_heads} heads of 4k")
    num_positions = section.integer("num_position_embeddings")
    if math.isqrt(num_positions) ** 2 != num_positions:
        raise section.error(f"num_position_embeddings should be a square, found {num_positions}")
    layers = section.integers("deepstack_visual_indexes")
    if list(layers) != sorted(set(layers)) or any(not 0 <= layer < depth for layer in layers):
        raise section.error(
            f"deepstack_visual_indexes should rise within the {depth} layers, found {layers}"
        )
    rope = section.section("rope_parameters") if section.has("rope_parameters") else None
    return VisionConfig(
        depth=depth,
        hidden_size=hidden_size,
        num_heads=num_heads,
        intermediate_size=section.integer("intermediate_size"),
        patch_size=section.integer("patch_size"),
        temporal_patch_size=section.integer("temporal_patch_size"),
        merge_size=section.integer("spatial_merge_size"),
        in_channels=section.integer("in_channels", default=3),
        num_position_embeddings=num_positions,
        out_hidden_size=section.integer("out_hidden_size"),
        deepstack_layers=layers,
        hidden_act=section.choice("hidden_act", "gelu_pytorch_tanh"),
        rope_theta=rope.number("rope_theta", default=10_000.0) if rope else 10_000.0,
    )


def _preprocessor(folder: Path, vision: VisionConfig) -> PreprocessorConfig:
    path = folder / "preprocessor_config.json"
    section: Fields | None = None
    if path.is_file():
        section = Fields.read(path)
    elif (folder / "processor_config.json").is_file():  # transformers 5 writes it there
        processor = Fields.read(folder / "processor_config.json")
        if processor.has("image_processor"):
            section = processor.section("image_processor")
    if section is None:
        return PreprocessorConfig()
    for key, value in (
        ("patch_size", vision.patch_size),
        ("temporal_patch_size", vision.temporal_patch_size),
        ("merge_size", vision.merge_size),
    ):
        if section.integer(key, default=value) != value:
            raise section.error(f"{key} should be {value}, as in config.json")
    size = section.section("size") if section.has("size") else section
    low = size.integer("shortest_edge", default=_MIN_PIXELS)
    high = size.integer("longest_edge", default=_MAX_PIXELS)
    low = section.integer("min_pixels", default=low)  # overrides size, as in transformers
    high = section.integer("max_pixels", default=high)
    if low > high:
        raise section.error(f"min_pixels {low} is above max_pixels {high}")
    mean, std = (
        section.channels("image_mean", default=0.5),
        section.channels("image_std", default=0.5),
    )
    if min(std) <= 0:
        raise section.error(f"image_std should be above 0, found {std}")
    return PreprocessorConfig(low, high, mean, std)


def _name(folder: Path) -> str:
    """The folder's name; in a Hugging Face cache, the repository's name."""
    path = folder.resolve()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.split("--")[-1]
    return path.name
