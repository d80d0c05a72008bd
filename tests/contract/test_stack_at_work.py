"""Names of transformers' trainer stack, used with a trainer under the drop-in as without it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dropin_runs import run_both_ways

pytest.importorskip("transformers")

SCRIPT = """
import torch, transformers
from transformers import (BertConfig, EarlyStoppingCallback, HfArgumentParser, PrinterCallback, SchedulerType, Trainer,
    TrainerCallback, TrainerControl, TrainerState, TrainingArguments, get_scheduler)
from transformers import debug_utils, modelcard, trainer, trainer_callback, trainer_optimizer
from transformers import trainer_pt_utils as pt, trainer_utils as tu, training_args, training_args_seq2seq
from transformers.data import data_collator
from transformers.integrations import AzureMLCallback, INTEGRATION_TO_CALLBACK, rewrite_logs
from transformers.integrations.integration_utils import TensorBoardCallback, hp_params
from transformers.trainer_seq2seq import Seq2SeqTrainer

transformers.logging.set_verbosity_error()
result, seen = {}, []

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = BertConfig()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        y = self.layer(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

rows = [{"x": [float(i), 1.0], "labels": [1.0]} for i in range(8)]

# Every class is subclassed, and the subclass is used.
class MyArguments(training_args.TrainingArguments):
    def __post_init__(self):
        super().__post_init__()
        self.mine = 1

class MyCallback(trainer_callback.TrainerCallback, trainer_callback.ExportableState):
    def state(self):
        return {"args": {}, "attributes": {}}

    def on_log(self, args, state, control, logs=None, **kwargs):
        seen.append([isinstance(args, TrainingArguments), isinstance(state, TrainerState),
                     isinstance(control, TrainerControl), sorted(rewrite_logs(logs))])

class MyTracker(AzureMLCallback):  # stays transformers' own
    def __init__(self):
        self.azureml_run = None

    def on_init_end(self, args, state, control, **kwargs):
        seen.append("tracker")

    on_train_begin = on_train_end = on_init_end

class MyFlow(trainer_callback.DefaultFlowCallback): ...
class MyStopping(EarlyStoppingCallback): ...
class MyState(trainer_callback.TrainerState): ...
class MyCollator(data_collator.DefaultDataCollator): ...
class MySampler(pt.LengthGroupedSampler): ...
class MySmoother(pt.LabelSmoother): ...
class MyParser(HfArgumentParser): ...

class MyTrainer(trainer.Trainer):
    def _get_train_sampler(self, dataset=None):
        return MySampler(2, lengths=[1] * len(rows))

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        result.setdefault("inputs", sorted(inputs))
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, dataloader, description, **kwargs):
        container, rows = pt.EvalLoopContainer(), 0
        for batch in dataloader:
            rows += pt.find_batch_size(batch)
            container.add(pt.nested_detach(self.model(**batch)["logits"]))
        arrays = pt.nested_truncate(container.get_arrays(), 6)
        metrics = tu.denumpify_detensorize({"eval_mean": arrays.mean() * 0 + 1, "eval_rows": rows})
        return tu.EvalLoopOutput(arrays, None, metrics, rows)

args = MyParser(MyArguments).parse_args_into_dataclasses(
    ["--output_dir", "out", "--max_steps", "4", "--logging_steps", "2", "--report_to", "none", "--use_cpu", "True",
     "--save_strategy", "no", "--disable_tqdm", "True", "--per_device_train_batch_size", "2"])[0]
mine = MyTrainer(Model(), args, MyCollator(), rows, rows, callbacks=[MyCallback(), MyTracker, MyFlow])
mine.state = MyState(is_world_process_zero=True, is_local_process_zero=True)
mine.remove_callback(PrinterCallback)
output = mine.train()
metrics = mine.evaluate()

result["is"] = {
    "output": isinstance(output, tu.TrainOutput),
    "trainer": isinstance(mine, (transformers.Trainer, trainer.Trainer)) and issubclass(Seq2SeqTrainer, Trainer),
    "state": isinstance(mine.state, TrainerState),
    "control": isinstance(mine.control, transformers.TrainerControl),
    "handler": isinstance(mine.callback_handler, trainer_callback.CallbackHandler),
    "args": isinstance(mine.args, training_args.TrainingArguments),
    "config": isinstance(mine.args.accelerator_config, pt.AcceleratorConfig),
    "optim": isinstance(mine.args.optim, training_args.OptimizerNames),
    "strategy": mine.args.eval_strategy is tu.IntervalStrategy.NO,
    "save": mine.args.save_strategy == tu.SaveStrategy.NO,
    "schedule": mine.args.lr_scheduler_type is SchedulerType.LINEAR,
    "hub": isinstance(mine.args.hub_strategy, tu.HubStrategy),
    "mode": mine.args.parallel_mode is training_args.ParallelMode.NOT_PARALLEL,
    "prediction": isinstance(tu.EvalPrediction(predictions=[1], label_ids=[1]), transformers.EvalPrediction),
    "tracker": issubclass(AzureMLCallback, TrainerCallback) and issubclass(TensorBoardCallback, TrainerCallback),
    "trackers": all(issubclass(one, TrainerCallback) for one in INTEGRATION_TO_CALLBACK.values()),
    "memory": isinstance(mine._memory_tracker, tu.TrainerMemoryTracker),
    "default": issubclass(trainer.DEFAULT_CALLBACKS[0], trainer_callback.DefaultFlowCallback),
    "mine": mine.args.mine,
    "in the handler": [isinstance(one, MyCallback) for one in mine.callback_handler.callbacks].count(True),
}
pt.save_metrics(mine, "eval", {"a": 1.0})
pt.save_state(mine)
result["functions"] = [
    metrics["eval_rows"], metrics["eval_mean"],
    pt.get_num_trainable_parameters(mine), pt.get_learning_rates(mine), len(pt.get_optimizer_group(mine)),
    pt.get_model_param_count(mine.model, trainable_only=True),
    pt.get_module_class_from_name(mine.model, "Linear").__name__,
    pt.get_parameter_names(mine.model, []), type(pt.get_dataloader_sampler(mine.get_train_dataloader())).__name__,
    pt.nested_gather(torch.ones(1), mine.args.parallel_mode).tolist(),
    tu.unwrap_peft_model(mine.model) is mine.model, tu.validate_quantization_for_training(mine.model),
    tu.compare_trainer_and_checkpoint_args(mine.args, mine.state), tu.number_of_arguments(mine.compute_loss),
    tu.check_target_module_exists(["layer"], "layer"), tu.default_compute_objective({"eval_loss": 1.0}),
    sorted(modelcard.extract_hyperparameters_from_trainer(mine)),
    sorted(vars(modelcard.TrainingSummary.from_trainer(mine, model_name="m"))),
    len(modelcard.parse_log_history(mine.state.log_history)[1]),
    trainer_optimizer.is_optimizer_factory(type(mine.optimizer)), hp_params({"a": 1}),
    sorted(tu.speed_metrics("x", 0.0)), MySmoother(epsilon=0.1).epsilon,
    get_scheduler("linear", mine.optimizer, 0, 4).__class__.__name__,
]
result["logged"] = [sorted(set(entry) - {"train_tokens_per_second"}) for entry in mine.state.log_history]
result["seen"] = seen
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return run_both_ways(SCRIPT, tmp_path_factory.mktemp("stack"))


@pytest.mark.parametrize("part", ["is", "functions", "inputs", "logged", "seen"])
def test_names_of_the_stack_with_a_trainer(part: str, ended: tuple[Any, Any]) -> None:
    theirs, ours = ended
    assert ours.result[part] == theirs.result[part]
    assert part != "is" or all(ours.result[part].values())
