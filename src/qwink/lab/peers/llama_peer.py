"""llama.cpp, through the C API that llama-cpp-python binds.

The Python class is not used: it evaluates the prompt's last token twice and samples in Python.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import llama_cpp
from llama_cpp import mtmd_cpp

from qwink.lab.peers.base import PeerAnswer, serve

# The template of Qwen's chat models; the library puts the tags around the picture.
PROMPT = "<|im_start|>user\n{picture}{question}<|im_end|>\n<|im_start|>assistant\n"
BATCH = 512  # the whole prompt at once
CONTEXT = 2048  # for a page and its text


class LlamaCpp:
    """`model` and `projector` are GGUF files: the text model and the vision encoder.

    `repack`: rearrange the weights for this processor at loading, for AMX among others.
    """

    def __init__(
        self,
        model: str,
        projector: str,
        threads: int,
        flash_attention: bool = True,
        repack: bool = True,
    ) -> None:
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)  # kept: C holds no reference
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p())
        mtmd_cpp.mtmd_helper_log_set(self._quiet, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        attention = (
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if flash_attention
            else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        options = llama_cpp.llama_model_default_params()
        options.use_extra_bufts = repack
        self._model = _made(llama_cpp.llama_model_load_from_file(model.encode(), options))
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = CONTEXT
        options.n_batch = options.n_ubatch = BATCH
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = attention
        self._context = _made(llama_cpp.llama_init_from_model(self._model, options))
        options = mtmd_cpp.mtmd_context_params_default()
        options.use_gpu = False
        options.print_timings = False
        options.n_threads = threads
        options.flash_attn_type = attention
        self._vision = _made(mtmd_cpp.mtmd_init_from_file(projector.encode(), self._model, options))
        self._sampler = llama_cpp.llama_sampler_init_greedy()

    def versions(self) -> dict[str, str]:
        return {"llama-cpp-python": llama_cpp.__version__}

    def answer(self, picture: bytes, question: str, num_tokens: int) -> PeerAnswer:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        chunks = self._tokenize(picture, question)
        num_prompt = mtmd_cpp.mtmd_helper_get_n_tokens(chunks)
        num_visual = sum(map(_num_visual, _parts(chunks)))
        end = llama_cpp.llama_pos()
        _check(
            mtmd_cpp.mtmd_helper_eval_chunks(
                self._vision, self._context, chunks, 0, 0, BATCH, True, ctypes.byref(end)
            ),
            "the prompt failed",
        )
        mtmd_cpp.mtmd_input_chunks_free(chunks)
        token = self._sample()
        first = time.perf_counter()
        for _ in range(num_tokens - 1):
            batch = llama_cpp.llama_batch_get_one((llama_cpp.llama_token * 1)(token), 1)
            _check(llama_cpp.llama_decode(self._context, batch), "a token failed")
            token = self._sample()
        return PeerAnswer(first, time.perf_counter(), num_tokens, num_prompt, num_visual)

    def _sample(self) -> int:
        return int(llama_cpp.llama_sampler_sample(self._sampler, self._context, -1))

    def _tokenize(self, picture: bytes, question: str) -> Any:
        marker = mtmd_cpp.mtmd_default_marker().decode()
        text = PROMPT.format(picture=marker, question=question).encode()
        wanted = mtmd_cpp.mtmd_input_text(text, len(text), False, True)
        buffer = (ctypes.c_uint8 * len(picture)).from_buffer_copy(picture)
        bitmap = _made(
            mtmd_cpp.mtmd_helper_bitmap_init_from_buf(self._vision, buffer, len(picture), False)
        )
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
        _check(
            mtmd_cpp.mtmd_tokenize(self._vision, chunks, ctypes.byref(wanted), bitmaps, 1),
            "the prompt could not be tokenised",
        )
        mtmd_cpp.mtmd_bitmap_free(bitmap)
        return chunks


def _parts(chunks: Any) -> list[Any]:
    count = mtmd_cpp.mtmd_input_chunks_size(chunks)
    return [mtmd_cpp.mtmd_input_chunks_get(chunks, index) for index in range(count)]


def _num_visual(chunk: Any) -> int:
    if mtmd_cpp.mtmd_input_chunk_get_type(chunk) != mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_IMAGE:
        return 0
    return int(mtmd_cpp.mtmd_input_chunk_get_n_tokens(chunk))


def _made(handle: Any) -> Any:
    if not handle:
        raise ValueError("llama.cpp cannot load a file; run its command-line tools to see why")
    return handle


def _check(code: int, what: str) -> None:
    if code != 0:
        raise ValueError(f"{what}: llama.cpp says {code}")


if __name__ == "__main__":
    serve(LlamaCpp)
