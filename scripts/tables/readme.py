"""Speed in the README, in English and Chinese."""

from __future__ import annotations

from dataclasses import dataclass

from qwink.lab.peers.cap import CPUS
from qwink.lab.peers.processors import NOT_MEASURED
from scripts.performance import processors
from scripts.performance.layout import Document, Results, table

OURS = "fast"
SHOWN = {
    "fast": "qwink `fast`",
    "balanced": "qwink `balanced`",
    "transformers-bf16": "Transformers, bf16",
    "openvino-int4-f32": "OpenVINO GenAI, int4, fp32",
    "openvino-int4": "OpenVINO GenAI, int4, bf16",
    "llama.cpp-Q4_0": "llama.cpp, Q4_0",
    "llama.cpp-Q4_0-pure": "llama.cpp, Q4_0, head too",
}
MEASURES = {"first_token_ms": "s", "decode_ms_per_token": "ms", "cold_start_ms": "s"}


@dataclass(frozen=True)
class Language:
    """Sentences with places for figures, and names of columns."""

    work: str
    head: list[str]
    kinds: str
    kinds_head: list[str]
    not_measured: str
    list_comma: str
    reuse: str
    streams: str
    start: str
    reading: str
    sentence_end: str

    def speed(self, results: Results) -> str:
        """The latest comparison with other engines; nothing while there is none."""
        result = results.read("peers")
        if result is None:
            return ""
        hardware, faster = result["facts"]["hardware"], result["times_faster"][OURS]
        amx = " + AMX" if "amx_int8" in hardware["features"] else ""
        work = self.work.format(cpus=hardware["num_cpus"], cpu=f"{hardware['cpu']}{amx}")
        rows = []
        for name, shown in SHOWN.items():
            figures = result["contenders"].get(name)
            if figures is None:
                continue
            row = [shown, *self._cells(name, figures, faster)]
            rows.append([*row, f"{figures['peak_rss_bytes']['max'] / 2**30:.1f} GiB"])
        return f"{work}\n\n{table(self.head, rows)}"

    def processors(self, results: Results) -> str:
        """The comparisons with capped instruction sets; nothing while there are none."""
        result = results.read("processors")
        if result is None:
            return ""
        found = result["processors"]
        rows, missing = [], []
        for cpu in (cpu for cpu in CPUS if cpu in found):
            if NOT_MEASURED in found[cpu]:
                missing.append(processors.SHOWN[cpu])
                continue
            for name, shown in SHOWN.items():
                if figures := found[cpu]["contenders"].get(name):
                    cells = self._cells(name, figures, found[cpu]["times_faster"][OURS])
                    rows.append([processors.SHOWN[cpu], shown, *cells[:2]])
        parts = [table(self.kinds_head, rows)] if rows else []
        if missing:
            parts.append(self.not_measured.format(kinds=self.list_comma.join(missing)))
        return "\n\n".join([self.kinds, *parts])

    @staticmethod
    def _cells(name: str, figures: Document, faster: Document) -> list[str]:
        """A contender's times, as far as they were measured, and how many times faster ours is."""
        cells = []
        for measure, unit in MEASURES.items():
            if measure not in figures:
                continue
            median = figures[measure]["median"]
            cell = f"{median / 1e3:.2f} s" if unit == "s" else f"{median:.0f} ms"
            if name in faster:
                cell += f", **{faster[name][measure]['median']:.2g}×**"
            cells.append(cell)
        return cells

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


ENGLISH = Language(
    "On {cpus} CPUs ({cpu}), a random checkpoint of the 2B's size, one 448×448 picture in a short\n"
    "prompt, all taking turns in one run. × is how many times faster `fast` is; the cold\n"
    "start is from the start of the process to the first token:",
    ["", "first token", "per token", "cold start", "peak memory"],
    "The same on processors that have less, or with what they lack hidden from all engines:",
    ["processor", "", "first token", "per token"],
    "Not measured yet, for want of such a processor: {kinds}.",
    ", ",
    "A second question about the same picture is answered {times} times sooner.",
    "Four users together get {times} times the tokens of one.",
    "nano answers {seconds} s after its process starts.",
    "It reads {share} of the characters of held-out lines right, or more, under every recipe.",
    "\n",
)
CHINESE = Language(
    "{cpus} 个 CPU（{cpu}），与 2B 同规模的随机权重，一张 448×448 的图片配一段简短的提示，\n"
    "各方在同一轮测试中交替运行。× 表示 `fast` 快多少倍；冷启动指从进程启动到首个 token：",
    ["", "首个 token", "之后每个 token", "冷启动", "内存峰值"],
    "在指令集较少的处理器上（或对各方都隐藏多出的指令集）：",
    ["处理器", "", "首个 token", "之后每个 token"],
    "尚未实测（没有相应的处理器）：{kinds}。",
    "、",
    "就同一张图片再提问，等待首个 token 的时间只有第一次的 1/{times}。",
    "四人同时使用时，总吞吐是一人的 {times} 倍。",
    "nano 从进程启动到给出答案用时 {seconds} 秒。",
    "对未参与训练的单行文字，它在每种配方下的字符正确率都不低于 {share}。",
    "",
)
