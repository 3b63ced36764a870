"""Train nano for a number of minutes, resuming from the last checkpoint in --out."""

import argparse
import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn

from . import data, model
from .evaluate import restore
from .model import Nano, NanoConfig, Teacher

WARMUP = 200
DECAY_FROM = 0.7
SAVE_EVERY = 180.0
LOG_EVERY = 100
LONGEST_STEP = 4.0  # seconds counted for one step at most, so that pauses do not count


def optimizers(
    nano: Nano, teacher: Teacher, rate: float, *, muon: bool = True
) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for everything else; without `muon`, AdamW for all.

    PyTorch's Muon multiplies in bfloat16, whatever the parameters' type.
    """
    hidden, other, plain = [], [], []
    for name, parameter in [*nano.named_parameters(), *teacher.named_parameters()]:
        if parameter.ndim == 2 and "embed" not in name and not name.startswith("heads"):
            hidden.append(parameter)
        elif parameter.ndim > 1:
            other.append(parameter)
        else:
            plain.append(parameter)
    if not muon:
        other, hidden = [*other, *hidden], []
    groups = [{"params": other, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))
    if not muon:
        return [adam]
    return [
        torch.optim.Muon(hidden, lr=rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        adam,
    ]


def schedule(step: int, progress: float) -> float:
    """Learning rate factor: linear warm-up by step, constant, then linear decay to 0.01 by time."""
    decay = (1 - progress) / (1 - DECAY_FROM)
    return min(1.0, (step + 1) / WARMUP) * max(0.01, min(1.0, decay))


def losses(
    nano: Nano, teacher: Teacher, batch: data.Batch
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Answer loss, teacher loss, and whether each answer token and each sample is correct."""
    features = nano.encode_images(batch.patches, batch.grid)
    hidden = nano.hidden_states(batch.ids, batch.positions, batch.slots, features)
    learnt = batch.learnt[:, 1:]
    logits = nano.logits(hidden[:, :-1][learnt]).float()
    target = batch.ids[:, 1:][learnt]
    right = logits.argmax(-1) == target
    wrong = torch.zeros(learnt.shape, dtype=torch.bool, device=learnt.device)
    wrong[learnt] = ~right
    return F.cross_entropy(logits, target), teacher(features, batch.cells), right, ~wrong.any(1)


def already_collated(batch: Any) -> Any:
    """The collate function for batches that are already complete."""
    return batch


def average_gradients(parameters: list[nn.Parameter], extra: Tensor) -> Tensor:
    """Average the gradients over all processes; returns the average of `extra` (K,)."""
    if not distributed.is_initialized():
        return extra
    flat = torch.cat([*(p.grad.flatten() for p in parameters if p.grad is not None), extra])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    sizes = [p.numel() for p in parameters if p.grad is not None]
    *grads, extra = torch.split(flat, [*sizes, len(extra)])
    for p, grad in zip([p for p in parameters if p.grad is not None], grads, strict=True):
        p.grad = grad.view_as(p)
    return extra


class TrainingRun:
    """Models, optimizers and counters of one training run, and its checkpoint."""

    def __init__(
        self,
        path: Path,
        device: str,
        rate: float,
        weights: Path | None = None,
        *,
        mixed: bool = True,
    ) -> None:
        """Goes on from `path` if it is there, else begins, perhaps with exported `weights`.

        `mixed`: multiply in bfloat16, and use Muon.
        """
        torch.manual_seed(0)
        config = NanoConfig()
        self.path, self.mixed = path, mixed
        self.nano = (restore(weights).train() if weights else Nano(config)).to(device)
        self.teacher = Teacher(config, data.SLOTS, len(data.SYMBOLS)).to(device)
        self.parameters = [*self.nano.parameters(), *self.teacher.parameters()]
        self.optimizers = optimizers(self.nano, self.teacher, rate, muon=mixed)
        self.step, self.seen, self.spent = 0, 0, 0.0
        if path.exists():
            self.load(device)

    def load(self, device: str) -> None:
        """Restore the state from the checkpoint."""
        state = torch.load(self.path, map_location=device, weights_only=True)
        self.nano.load_state_dict(state["nano"])
        self.teacher.load_state_dict(state["teacher"])
        for optimizer, saved in zip(self.optimizers, state["tools"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seen, self.spent = state["step"], state["seen"], state["spent"]
        torch.set_rng_state(state["rng"].cpu())

    def save(self) -> None:
        """Write the checkpoint under a temporary name, then rename it."""
        state = {
            "nano": self.nano.state_dict(),
            "teacher": self.teacher.state_dict(),
            "tools": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "seen": self.seen,
            "spent": self.spent,
            "rng": torch.get_rng_state(),
        }
        part = self.path.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.path)

    def update(self, batch: data.Batch, rate: float, extra: Tensor) -> Tensor:
        """One optimizer step; returns the averages of `extra` and of the step's figures."""
        with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=self.mixed):
            loss, teacher_loss, right, exact = losses(self.nano, self.teacher, batch)
        (loss + teacher_loss).backward()  # type: ignore[no-untyped-call]
        found = [loss.item(), teacher_loss.item(), right.sum(), len(right), exact.sum(), len(exact)]
        extra = average_gradients(self.parameters, torch.cat([extra, torch.tensor(found)]))
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        return extra


def train(rank: int, args: argparse.Namespace) -> None:
    """Train in one process. A worker process generates its pictures."""
    torch.set_num_threads(args.threads)
    if args.processes > 1:
        distributed.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{args.port}",
            rank=rank,
            world_size=args.processes,
            timeout=timedelta(days=1),
        )
    if args.fuse:
        torch._dynamo.config.recompile_limit = 64
        model.rotate = torch.compile(model.rotate, dynamic=True)
        model.swiglu = torch.compile(model.swiglu, dynamic=True)
        model.RMSNorm.forward = torch.compile(  # type: ignore[method-assign]
            model.RMSNorm.forward, dynamic=True
        )
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "last.pt"
    run = TrainingRun(path, args.device, args.rate, args.start, mixed=not args.float32)
    total = 60 * args.minutes
    progress = torch.tensor(run.spent / total)
    progress.share_memory_()  # type: ignore[no-untyped-call]
    seed = 1000 * run.step + rank
    easy, varied = args.start is None, args.varied
    batch_size = args.batch // args.processes
    stream = data.Stream(batch_size, seed, progress, easy=easy, varied=varied)
    loader = iter(
        torch.utils.data.DataLoader(
            stream, None, num_workers=1, prefetch_factor=6, collate_fn=already_collated
        )
    )
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_stop.append(number))
    sums = torch.zeros(7)
    before, saved_at, logged = time.monotonic(), run.spent, (run.spent, run.seen)
    done = False
    while not done:
        batch = next(loader).to(args.device)
        now = time.monotonic()
        extra = torch.tensor([min(now - before, LONGEST_STEP), float(bool(asked_to_stop))])
        before = now
        rate = args.rate * schedule(run.step, run.spent / total)
        passed, stop, *found = run.update(batch, rate, extra).tolist()
        sums += torch.tensor([*found, 1 / args.processes]) * args.processes
        run.step += 1
        run.seen += round(found[-1] * args.processes)
        run.spent += passed
        progress.fill_(run.spent / total)
        done = run.spent >= total or stop > 0
        if rank == 0 and run.step % LOG_EVERY == 0:
            loss, teacher_loss, right, tokens, exact, lines, steps = sums.tolist()
            report = {
                "step": run.step,
                "seen": run.seen,
                "minutes": run.spent / 60,
                "loss": loss / steps / args.processes,
                "aux": teacher_loss / steps / args.processes,
                "accuracy": right / tokens,
                "exact": exact / lines,
                "per_second": (run.seen - logged[1]) / (run.spent - logged[0]),
            }
            print(json.dumps({k: round(v, 4) for k, v in report.items()}), flush=True)
            sums.zero_()
            logged = (run.spent, run.seen)
        if rank == 0 and (done or run.spent - saved_at > SAVE_EVERY):
            saved_at = run.spent
            run.save()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=110)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="exported folder whose weights to begin with")
    parser.add_argument("--varied", action="store_true", help="draw the pictures of varied.py")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--batch", type=int, default=96, help="pictures per step, over all processes"
    )
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument(
        "--processes", type=int, default=1, help="number of processes; --threads applies to each"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument(
        "--float32",
        action="store_true",
        help="for processors without bfloat16 instructions, which are slow with it",
    )
    parser.add_argument("--fuse", action="store_true", help="compile the elementwise operations")
    args = parser.parse_args()
    if args.processes == 1:
        train(0, args)
        return
    start: Any = spawn
    group: Any = start(train, (args,), args.processes, join=False)

    def forward(number: int, _: object) -> None:
        for pid in group.pids():
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, forward)
    while not group.join():
        pass


if __name__ == "__main__":
    main()
