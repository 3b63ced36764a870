"""Converts a conversation to token ids, exactly as the chat template formats it."""

from . import tokenizer as tk

PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"


def turn(question: str, picture: bool, question_first: bool) -> str:
    """One user turn and the header of the answer."""
    before, after = (question, "") if question_first else ("", question)
    content = before + PICTURE + after if picture else question
    return f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"


def expand(ids: tuple[int, ...], visual: int) -> list[int]:
    """Repeat the pad token of each picture once per visual token."""
    out: list[int] = []
    for token in ids:
        out.extend([token] * (visual if token == tk.IMAGE else 1))
    return out


def conversation(
    turns: list[tuple[str, str]], visual: int, system: str = "", question_first: bool = False
) -> tuple[list[int], list[bool]]:
    """Ids (L,) of a conversation, and a mask (L,) of those that the loss includes."""
    ids: list[int] = []
    learnt: list[bool] = []
    for number, (question, answer) in enumerate(turns):
        text = turn(question, number == 0, question_first)
        if number:
            text = "\n" + text
        elif system:
            text = f"<|im_start|>system\n{system}<|im_end|>\n{text}"
        new = expand(tk.encode(text), visual)
        reply = [*tk.encode_bytes(answer), tk.STOP]
        ids += new + reply
        learnt += [False] * len(new) + [True] * len(reply)
    return ids, learnt
