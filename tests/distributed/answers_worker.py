"""What each process of `test_answers_of_two.py` runs: `answers_worker.py OUT [fail]`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from ostinato import EarlyStoppingCallback, EvalPrediction, MetricError, QuestionAnsweringTrainer, TrainingArguments


class ForQuestionAnswering(nn.Module):
    """Start and end logits of six tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(1, 2)

    def forward(self, x, start_positions=None, end_positions=None):
        starts, ends = self.layer(x.unsqueeze(-1)).unbind(-1)
        logits = {"start_logits": starts, "end_logits": ends}
        if start_positions is None:
            return logits
        cross = nn.functional.cross_entropy
        return {"loss": cross(starts, start_positions) + cross(ends, end_positions), **logits}


def features(count: int) -> list[dict]:
    rows = [[float((n * k) % 7) for k in range(6)] for n in range(count)]
    return [{"x": row, "example_id": n, "start_positions": 1, "end_positions": 2} for n, row in enumerate(rows)]


EVALUATED = [{name: row[name] for name in ("x", "example_id")} for row in features(11)]
CALLS: list[int] = []


def answers(examples, rows, predictions, stage="eval"):
    CALLS.append(len(predictions[0]))
    assert len(examples) == len(rows) == len(predictions[0])
    if "fail" in sys.argv:
        raise RuntimeError("no answers today")
    return EvalPrediction(predictions[0].argmax(-1), [one["answer"] for one in examples])


def main(out: Path) -> None:
    rank = int(os.environ.get("RANK", 0))
    trainer = QuestionAnsweringTrainer(
        ForQuestionAnswering(),
        TrainingArguments(
            str(out / "run"),
            per_device_train_batch_size=4 // int(os.environ.get("WORLD_SIZE", 1)),
            per_device_eval_batch_size=2,
            num_train_epochs=3,
            eval_strategy="epoch",
            save_strategy="epoch",
            load_best_model_at_end=True,
            metric_for_best_model="score",
            greater_is_better=True,
            rehearse="fail" not in sys.argv,
            learning_rate=0.1,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=features(8),
        eval_dataset=EVALUATED,
        eval_examples=[{"id": n, "answer": n % 6} for n in range(11)],
        post_process_function=answers,
        compute_metrics=lambda prediction: {"score": float((prediction.predictions != prediction.label_ids).mean())},
        callbacks=[EarlyStoppingCallback(1)],
    )
    result: dict = {}
    try:
        trainer.train()
        output = trainer.predict(EVALUATED, trainer.eval_examples)
        scores = [entry["eval_score"] for entry in trainer.state.log_history if "eval_score" in entry]
        result = {"scores": scores, "best": trainer.state.best_metric, "step": trainer.state.global_step}
        result |= {"test": output.metrics["test_score"], "has_answers": output.predictions is not None}
    except (RuntimeError, MetricError) as error:
        result = {"error": str(error)}
    (out / f"rank-{rank}.json").write_text(json.dumps({**result, "calls": CALLS}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
