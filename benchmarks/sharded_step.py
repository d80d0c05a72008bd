"""CPU time of a step of sharded training on two processes, over that of a bare FSDP2 loop with the same steps.

    python benchmarks/sharded_step.py                  # both in turns, in the same processes
    python benchmarks/sharded_step.py --rounds 5 --steps 40

The figure is the median over the rounds of the sum of both processes' CPU time. The bare loop clips, steps and clears
as ours does, and reads the loss once at the end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

WIDTH, LAYERS, TOKENS, ROWS, VOCABULARY, WARM = 128, 4, 64, 8, 512, 5


def build_model() -> Any:
    """Return a small Llama, always with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, vocab_size=VOCABULARY, use_cache=False))


def run_bare(rows: list[dict[str, Any]], steps: int) -> float:
    """Return the CPU time of so many steps of a loop by hand, after a few to warm up."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = build_model(), init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(rows, batch_size=ROWS)  # type: ignore[arg-type]
    began, total = 0.0, torch.zeros(())
    for step, batch in enumerate(loader):
        if step == WARM:
            began = time.process_time()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        if step == WARM + steps - 1:
            break
    return time.process_time() - began


def run_ours(rows: list[dict[str, Any]], steps: int, out: str) -> float:
    """Return the CPU time of so many steps of the trainer, after a few to warm up."""
    from ostinato import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == WARM:
                self.began = time.process_time()
            elif state.global_step == WARM + steps:
                self.ended = time.process_time()

    clock = Clock()
    args = TrainingArguments(
        out,
        shard="full",
        max_steps=WARM + steps,
        per_device_train_batch_size=ROWS,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        weight_decay=0.01,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        journal=False,
    )
    Trainer(build_model(), args, train_dataset=rows, callbacks=[clock]).train()
    return clock.ended - clock.began


def run_process(rounds: int, steps: int) -> None:
    """Run both in turns in one of the processes; the first prints the figures."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(dist.get_rank())
    ids = torch.randint(0, VOCABULARY, ((WARM + steps) * ROWS * 2, TOKENS), generator=generator)
    rows = [{"input_ids": one, "labels": one} for one in ids]
    ratios = []
    with tempfile.TemporaryDirectory() as out:
        for number in range(rounds):
            runs = [("bare", lambda: run_bare(rows, steps)), ("ours", lambda: run_ours(rows, steps, out))]
            found = {}
            for name, run in runs if number % 2 else reversed(runs):
                spent = torch.tensor(run())
                dist.all_reduce(spent)
                found[name] = float(spent)
            ratios.append(found["ours"] / found["bare"])
            if dist.get_rank() == 0:
                milliseconds = {name: f"{value / steps / 2 * 1000:.1f} ms" for name, value in found.items()}
                print(f"round {number + 1}: {milliseconds}, ratio {ratios[-1]:.3f}", file=sys.stderr)
    if dist.get_rank() == 0:
        print(f"CPU time per step over a bare FSDP2 loop: {statistics.median(ratios):.3f}", file=sys.stderr)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    if "RANK" in os.environ:
        run_process(options.rounds, options.steps)
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", __file__, *sys.argv[1:]]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
