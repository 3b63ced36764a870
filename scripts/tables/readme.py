"""What the README says of speed, in English and Chinese."""

from __future__ import annotations

from dataclasses import dataclass

from qwink.export.recipe import RECIPES
from scripts.performance.layout import Results, table
from scripts.performance.speed import REFERENCE


@dataclass(frozen=True)
class Language:
    """Sentences with places for figures, and names of columns."""

    work: str
    head: list[str]
    reuse: str
    streams: str
    start: str
    reading: str
    sentence_end: str

    def speed(self, results: Results) -> str:
        """The latest comparison with Transformers; nothing while there is none."""
        result = results.read("speed")
        if result is None:
            return ""
        hardware, faster = result["hardware"], result["times_faster_than"][REFERENCE]
        amx = " + AMX" if "amx_int8" in hardware["features"] else ""
        work = self.work.format(cpus=hardware["num_cpus"], cpu=f"{hardware['cpu']}{amx}")
        rows = []
        for name, figures in result["contenders"].items():
            ratio = faster.get(name)
            first = f"{figures['first_token_ms']['median'] / 1e3:.2f} s"
            token = f"{figures['decode_ms_per_token']['median']:.0f} ms"
            if ratio:
                first += f", **{ratio['first_token_ms']:.2f}×**"
                token += f", **{ratio['decode_ms_per_token']:.2f}×**"
            memory = f"{figures['peak_rss_bytes']['max'] / 2**30:.1f} GiB"
            rows.append([_shown(name), first, token, memory])
        return f"{work}\n\n{table(self.head, rows)}"

    def more(self, results: Results) -> str:
        """Caches, batching, start-up and nano, as far as they are measured."""
        sentences = []
        if serving := results.read("serving"):
            ratio = serving["reuse"]["times_faster_than_new"]["second_question"]
            sentences.append(self.reuse.format(times=f"{ratio:.0f}"))
            rates = serving["batching"]["times_one_stream"]
            sentences.append(self.streams.format(times=f"{rates['4']:.1f}"))
        if start := results.read("start"):
            seconds = start["ask_ms"]["nano"]["median"] / 1e3
            sentences.append(self.start.format(seconds=f"{seconds:.1f}"))
        if nano := results.read("nano"):
            least = min(scores["read"]["characters"] for scores in nano["recipes"].values())
            sentences.append(self.reading.format(share=f"{least:.0%}"))
        return self.sentence_end.join(sentences)


def _shown(contender: str) -> str:
    if contender in RECIPES:
        return f"qwink `{contender}`"
    return "Transformers, bf16" if contender == REFERENCE else contender


ENGLISH = Language(
    "On {cpus} CPUs ({cpu}), a random checkpoint of the 2B's size, one 448×448 picture in a short\n"
    "prompt, all taking turns in one run:",
    ["", "first token", "per token", "peak memory"],
    "A second question about the same picture is answered {times} times sooner.",
    "Four users together get {times} times the tokens of one.",
    "nano answers {seconds} s after its process starts.",
    "It reads {share} of the characters of held-out lines right, or more, under every recipe.",
    "\n",
)
CHINESE = Language(
    "{cpus} 个 CPU（{cpu}），与 2B 同规模的随机权重，一张 448×448 的图片配一段简短的提示，\n"
    "各方在同一轮测试中交替运行：",
    ["", "首个 token", "之后每个 token", "内存峰值"],
    "就同一张图片再提问，等待首个 token 的时间只有第一次的 1/{times}。",
    "四人同时使用时，总吞吐是一人的 {times} 倍。",
    "nano 从进程启动到给出答案用时 {seconds} 秒。",
    "对未参与训练的单行文字，它在每种配方下的字符正确率都不低于 {share}。",
    "",
)
