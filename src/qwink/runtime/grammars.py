"""Shapes of answers to constraints of tokens, by llguidance.

A grammar forces tokens where it leaves one text only, as the tokenizer would spell it. Where a
token is forced no other is allowed, so that an answer's tokens do not depend on whether several of
them run in one step.

Masks are computed in a thread, while the engine runs.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwink.errors import GenerationError, OptionError, ShapeError
from qwink.extras import install_command
from qwink.inputs.tokenizer import Tokenizer
from qwink.types import Shape

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_CACHED = 32
# States of a grammar's lexer, of about 2 kB each, which copies share.
_MAX_LEXER_STATES = 16_384
_MAX_FORCED = 2_000  # bytes at once; a longer text is most likely one without end
_OPTIONS = {
    "json_object": "schema",
    "json_schema": "schema",
    "regex": "regex",
    "choices": "choices",
    "grammar": "grammar",
}


class Grammars:
    """The constraints of one model. Its parts are built when the first shape comes."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, forbidden: NDArray[np.int64]) -> None:
        """`forbidden`: ids that are never sampled. `vocab_size`: width V of the logits."""
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._forbidden = forbidden
        self._lock = threading.Lock()
        self._library: LLTokenizer | None = None
        self._compiled: OrderedDict[Shape, tuple[LLMatcher, tuple[str, ...]]] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None

    def constraint(self, shape: Shape) -> tuple[GrammarConstraint, tuple[str, ...]]:
        """The constraint of one answer, and warnings about parts that are not enforced.

        The first call takes a second or two, and the first of a shape milliseconds.
        Raises ShapeError for a shape that cannot be compiled or allows no answer, and OptionError
        if llguidance is not installed.
        """
        check_installed(option_of(shape))
        with self._lock:
            if self._library is None:
                self._library = _llguidance_tokenizer(self._tokenizer, self._vocab_size)
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="qwink-mask")
            found = self._compiled.get(shape)
            if found is None:
                found = compile_shape(shape, self._library)
                self._check_begins(shape, found[0])
                self._compiled[shape] = found
            self._compiled.move_to_end(shape)
            while len(self._compiled) > MAX_CACHED:
                self._compiled.popitem(last=False)
            matcher, warnings = found
            copy = matcher.deep_copy()
        assert self._pool is not None
        return GrammarConstraint(copy, self._vocab_size, self._forbidden, self._pool), warnings

    def close(self) -> None:
        """Stop the thread. Constraints that are in use fail."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
            self._pool = self._library = None
            self._compiled.clear()

    def _check_begins(self, shape: Shape, matcher: LLMatcher) -> None:
        """Raises ShapeError unless an answer can begin."""
        probe = matcher.deep_copy()
        if len(probe.compute_ff_bytes()) > _MAX_FORCED:
            raise ShapeError(option_of(shape), "each answer is too long, or has no end; change it")
        forced = probe.compute_ff_tokens()
        if forced:
            allowed = not np.isin(forced, self._forbidden).any()
        else:
            mask = _unpacked(probe.compute_bitmask(), self._vocab_size)
            mask[self._forbidden] = False
            allowed = bool(mask.any()) and not probe.is_error()
        if not allowed:
            raise ShapeError(option_of(shape), "no answer has this shape; change it")


class GrammarConstraint:
    """One answer's place in a grammar. Implements `Constraint`.

    The matcher is ahead of the answer by the forced tokens.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        forbidden: NDArray[np.int64],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size
        self._forbidden, self._pool = forbidden, pool
        self._forced: tuple[int, ...] = ()
        self._ends = False
        self._pending: Future[NDArray[np.bool_]] | None = None
        self._advance()

    def forced(self) -> tuple[int, ...]:
        return self._forced

    def mask(self) -> NDArray[np.bool_]:
        if self._pending is None:
            return self._compute()
        return self._pending.result()

    def accept(self, token: int) -> None:
        if self._forced:
            if token != self._forced[0]:
                raise GenerationError(f"token {token} is not the one that the grammar forces")
            self._forced = self._forced[1:]
            return
        self._wait()
        self._matcher.consume_token(token)
        self._advance()

    def num_allowed(self, tokens: Sequence[int]) -> int:
        count = 0
        for token, forced in zip(tokens, self._forced, strict=False):
            if token != forced:
                return count
            count += 1
        if count == len(tokens):
            return count
        self._wait()
        return count + self._matcher.validate_tokens(list(tokens[count:]))

    @property
    def ends(self) -> bool:
        return self._ends

    @property
    def stopped(self) -> bool:
        return self._ends and not self._forced

    @property
    def complete(self) -> bool:
        if self._forced:
            return False
        self._wait()
        return bool(self._matcher.is_accepting()) and not self._matcher.is_error()

    def _advance(self) -> None:
        """Take the forced tokens, and begin to compute the mask behind them."""
        matcher = self._matcher
        self._check()
        if not matcher.is_stopped() and len(matcher.compute_ff_bytes()) <= _MAX_FORCED:
            forced = matcher.compute_ff_tokens()
            if forced:
                matcher.consume_tokens(forced)
                self._check()
                self._forced = tuple(forced)
        self._ends = matcher.is_stopped()
        self._pending = None if self._ends else self._pool.submit(self._compute)

    def _compute(self) -> NDArray[np.bool_]:
        packed = self._matcher.compute_bitmask()
        self._check()
        mask = _unpacked(packed, self._vocab_size)
        mask[self._forbidden] = False
        return mask

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = _reason(self._matcher.get_error())
            raise GenerationError(
                f"the answer's shape could not be followed ({reason}); simplify it"
            )


def option_of(shape: Shape) -> str:
    """The option of `ask` that gives shapes of this kind."""
    return _OPTIONS[shape.kind]


def check_installed(option: str) -> None:
    """Raises OptionError, with the command that installs it, if llguidance is missing."""
    if find_spec("llguidance") is None:
        command = install_command("structured")
        raise OptionError(f"{option} needs llguidance; install it with: {command}")


def compile_shape(shape: Shape, tokenizer: LLTokenizer) -> tuple[LLMatcher, tuple[str, ...]]:
    """A matcher at the start of an answer, and warnings. Raises ShapeError."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
    matcher = LLMatcher(tokenizer, _grammar(shape), log_level=0, limits=limits)
    if matcher.is_error():
        raise ShapeError(option_of(shape), _reason(matcher.get_error()))
    ignored = [
        f"the schema is not enforced in full: {one}" for one in matcher.get_grammar_warnings()
    ]
    return matcher, tuple(ignored)


def _grammar(shape: Shape) -> str:
    from llguidance import LLMatcher

    if shape.kind == "regex":
        return str(LLMatcher.grammar_from_regex(shape.source))
    if shape.kind == "grammar":
        from llguidance.gbnf_to_lark import any_to_lark

        return str(LLMatcher.grammar_from_lark(any_to_lark(shape.source)))
    schema: Any = {"type": "object"}
    if shape.kind == "json_schema":
        schema = json.loads(shape.source)
    # Qwen goes on with line breaks for ever where whitespace is allowed.
    options: Any = {"whitespace_flexible": False, "lenient": not shape.strict}
    try:
        return str(LLMatcher.grammar_from_json_schema(schema, overrides=options))
    except ValueError as error:
        raise ShapeError("schema", _reason(str(error))) from None


def _llguidance_tokenizer(tokenizer: Tokenizer, vocab_size: int) -> LLTokenizer:
    """llguidance's view of a tokenizer.

    Made from our own, since the one that llguidance reads from tokenizer.json turns the text
    "<|im_end|>" of a schema into the token.
    """
    from llguidance import LLTokenizer

    # Without "slices", which take half a second more to build and save microseconds a mask.
    return LLTokenizer(
        _Spellings(tokenizer, vocab_size),  # type: ignore[arg-type]  # what it reads is duck-typed
        n_vocab=vocab_size,
        eos_token=list(tokenizer.eos_ids),
        slices=[],
    )


class _Spellings:
    """What llguidance reads of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.eos_token_id = tokenizer.eos_ids[0]
        self.tokens = tokenizer.spellings(vocab_size)
        self.special_token_ids = sorted(tokenizer.added_tokens.values())
        self._encode = tokenizer.encode_verbatim

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)


def _unpacked(packed: bytes, vocab_size: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    mask = np.zeros(vocab_size, np.bool_)
    known = min(vocab_size, len(bits))
    mask[:known] = bits[:known]
    return mask


def _reason(message: str) -> str:
    """The line of a message of llguidance that names the cause."""
    lines = [line.strip() for line in message.strip().split("\n")]
    causes = [line for line in lines if line.startswith("error:")]  # below a drawing of the place
    return (causes or lines)[0].removeprefix("error:").strip()[:300] or "it is not valid"
