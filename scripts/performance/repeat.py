"""The commands behind the page."""

from __future__ import annotations

from scripts.performance.layout import Results, Section

TEXT = """## Repeat it

```sh
python benchmarks/make_checkpoint.py standin                 # 4.3 GB
qwink export standin --recipe fast --out standin-fast        # likewise the other recipes
for peer in transformers openvino llama.cpp; do              # benchmarks/peers/README.md
  python -m benchmarks.peers.install $peer --checkpoint standin
done
python -m qwink.lab.peers.compare --artifact fast=standin-fast --artifact balanced=standin-balanced
for cpu in avx2 avxvnni avx512; do                           # llama.cpp for each kind of processor
  python -m benchmarks.peers.install llama.cpp --checkpoint standin --cpu $cpu
done
python -m qwink.lab.peers.compare --cpu all --artifact fast=standin-fast
python -m qwink.lab.peers.speed standin --artifact fast=standin-fast --artifact small=standin-small
python -m qwink.lab.verify.synthetic --exact standin-exact --artifact fast=standin-fast
python -m qwink.lab.serving standin-fast
python -m qwink.lab.start --model nano --model fast=standin-fast
python -m benchmarks.nano
qwink bench stages --model standin-fast --out benchmarks/results/stages-fast.json
qwink serve --model standin-fast & qwink bench load http://127.0.0.1:8000 \\
  --out benchmarks/results/load-fast.json
qwink bench ladder --out benchmarks/results/ladder-nano.json
qwink bench ladder standin --pictures 7 --max-tokens 8 --out benchmarks/results/ladder-2b.json
python -m scripts.make_performance                           # this page
```
"""


def section(results: Results) -> Section:
    return Section(TEXT)
