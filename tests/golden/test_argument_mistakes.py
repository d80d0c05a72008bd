"""What a user sees when arguments are wrong: the whole text, word by word, before any data is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader

import ostinato
from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.core.notices import forget_notices
from ostinato.metrics import available
from tests.support import tiny

ROWS = tiny.regression_rows(8)
# name -> (what is called, the types it also is, what it says)
MISTAKES: dict[str, tuple[Callable[[], Any], tuple[type, ...], str]] = {}


def mistake(text: str, *also: type) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(call: Callable[[], Any]) -> Callable[[], Any]:
        MISTAKES[call.__name__] = (call, also, text.strip("\n"))
        return call

    return register


def arguments(**given: Any) -> TrainingArguments:
    return TrainingArguments(**{"output_dir": "out", "use_cpu": True, **given})


def trainer(*args: Any, **given: Any) -> Trainer:
    return Trainer(*args, **{"args": arguments(), "train_dataset": ROWS, **given})


@mistake(
    """
sampler= and batch_sampler= were both passed
  why: both decide which rows make up a batch
  fix: leave one of them out
"""
)
def two_samplers():
    trainer(tiny.regression(), sampler=range(8), batch_sampler=[[0, 1]])


@mistake(
    """
a DataLoader as train_dataset with train_sampling_strategy='group_by_length'
  why: it has its own order and batches
  fix: leave out one of the two
"""
)
def grouped_loader():
    args = arguments(train_sampling_strategy="group_by_length")
    trainer(tiny.regression(), args=args, train_dataset=DataLoader(ROWS))  # type: ignore[arg-type]


@mistake(
    """
sampler is a BatchSampler, which yields batches
  why: a sampler yields single rows, of which per_device_train_batch_size make a batch
  fix: pass it as batch_sampler=
""",
    TypeError,
)
def batches_for_rows():
    trainer(tiny.regression(), sampler=BatchSampler(range(8), 2, drop_last=False))


@mistake(
    """
length_window=8 with train_sampling_strategy='random'
  why: it is the number of batches that are sorted by length together, and nothing is sorted
  fix: set train_sampling_strategy='group_by_length', or leave length_window out
"""
)
def window_of_nothing():
    arguments(length_window=8)


@mistake(
    """
max_tokens_per_batch=4096 with train_sampling_strategy='sequential'
  why: rows are grouped by length, and cannot keep their order
  fix: leave train_sampling_strategy out, or use per_device_train_batch_size
"""
)
def budget_in_sequence():
    arguments(max_tokens_per_batch=4096, train_sampling_strategy="sequential")


@mistake(
    """
a mixture of training sets with train_sampling_strategy='group_by_length' and length_window=8
  why: the weights of its sets decide its order
  fix: leave out the one or the others
"""
)
def grouped_mixture():
    args = arguments(train_sampling_strategy="group_by_length", length_window=8)
    trainer(tiny.regression(), args=args, train_dataset={"a": (ROWS, 0.7), "b": (ROWS, 0.3)})


@mistake(
    """
a mixture of training sets with max_tokens_per_batch=4096
  why: the weights of its sets decide its order
  fix: leave out one of the two
"""
)
def budget_of_a_mixture():
    args = arguments(max_tokens_per_batch=4096)
    trainer(tiny.regression(), args=args, train_dataset={"a": (ROWS, 0.7), "b": (ROWS, 0.3)})


# ------------------------------------------------------------------------------------------------------- arguments


@mistake(
    """
TrainingArguments has no argument 'learning_rat' (learning_rat=0.1)
  why: an unknown argument would have no effect
  fix: did you mean 'learning_rate'?
""",
    TypeError,
)
def misspelt():
    arguments(learning_rat=0.1)


@mistake(
    """
TrainingArguments has no argument 'batch_size' (batch_size=16)
  why: an unknown argument would have no effect
  fix: did you mean 'per_device_train_batch_size'?
""",
    TypeError,
)
def the_name_of_another_library():
    arguments(batch_size=16)


@mistake(
    """
TrainingArguments has no argument 'xyzzy' (xyzzy=1)
  why: an unknown argument would have no effect
  fix: leave it out; args.explain() lists all arguments
""",
    TypeError,
)
def no_name_at_all():
    arguments(xyzzy=1)


@mistake(
    """
evaluation_strategy and eval_strategy='steps' contradict each other
  why: evaluation_strategy is the old name of eval_strategy, and asks for 'epoch'
  fix: leave evaluation_strategy out
"""
)
def an_old_name_against_its_new_one():
    arguments(evaluation_strategy="epoch", eval_strategy="steps")


@mistake(
    """
jit_mode_eval=True is not supported
  why: nothing is traced by TorchScript
  fix: set torch_compile=True
""",
    NotImplementedError,
)
def an_old_name_for_what_we_do_not_do():
    arguments(jit_mode_eval=True)


@mistake(
    """
deepspeed='ds.json' is not supported
  why: weights are divided among processes by FSDP2 only
  fix: leave it out and start with torchrun; shard='full' divides the model among the processes
""",
    NotImplementedError,
)
def deepspeed():
    arguments(deepspeed="ds.json")


@mistake(
    """
eval_strategy: 'epochs' is not a valid IntervalStrategy
  why: please select one of ['no', 'steps', 'epoch']
  fix: did you mean 'epoch'?
"""
)
def a_word_that_is_none():
    arguments(eval_strategy="epochs")


@mistake(
    """
learning_rate='1e-4' is not a number of at least 0
  why: it is a str
  fix: pass learning_rate as a number; in YAML, 1e-4 is a string and 1.0e-4 a number
"""
)
def a_number_as_text():
    arguments(learning_rate="1e-4")


@mistake(
    """
load_best_model_at_end=True with eval_strategy='no'
  why: it compares evaluations, and there are none
  fix: set eval_strategy='epoch', or eval_strategy='steps' with eval_steps
"""
)
def the_best_model_without_evaluation():
    arguments(load_best_model_at_end=True)


@mistake(
    """
bf16=True with fp16=True
  why: only one number format can be used
  fix: keep bf16 if the device supports it, otherwise fp16
"""
)
def two_precisions():
    arguments(bf16=True, fp16=True)


@mistake(
    """
eval_steps=1.5 is not a whole number
  why: below 1 it is a fraction of the run, above 1 a number of steps
  fix: set eval_steps=2
"""
)
def a_broken_interval():
    arguments(eval_strategy="steps", eval_steps=1.5)


@mistake(
    """
dataloader_prefetch_factor=4 with dataloader_num_workers=0
  why: it applies to worker processes, and there are none
  fix: set dataloader_num_workers above 0, or leave dataloader_prefetch_factor out
"""
)
def prefetching_without_workers():
    arguments(dataloader_prefetch_factor=4)


@mistake(
    """
label_names='labels' is not a list
  why: a string would be read character by character
  fix: set label_names=['labels']
"""
)
def a_text_for_a_list():
    arguments(label_names="labels")


@mistake(
    """
lr_scheduler_kwargs='{min_lr: 1}' is not valid JSON
  why: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
  fix: write it like '{"key": "text", "other": 1}'
"""
)
def broken_json():
    arguments(lr_scheduler_kwargs="{min_lr: 1}")


@mistake(
    """
5 problems with the arguments:
1. use_ipex=True is not supported
  why: Intel's extension is not used
  fix: leave it out; use bf16=True
2. TrainingArguments has no argument 'learnig_rate' (learnig_rate=1)
  why: an unknown argument would have no effect
  fix: did you mean 'learning_rate'?
3. save_strategy: 'never' is not a valid SaveStrategy
  why: please select one of ['no', 'steps', 'epoch', 'best']
  fix: use one of the values above
4. per_device_train_batch_size=0 is not a whole number of at least 1
  why: it is out of range
  fix: the default is per_device_train_batch_size=8
5. load_best_model_at_end=True with eval_strategy='no'
  why: it compares evaluations, and there are none
  fix: set eval_strategy='epoch', or eval_strategy='steps' with eval_steps
"""
)
def all_at_once():
    arguments(
        learnig_rate=1,
        use_ipex=True,
        save_strategy="never",
        per_device_train_batch_size=0,
        load_best_model_at_end=True,
    )


# --------------------------------------------------------------------------------------------- what a trainer is given


@mistake(
    """
Trainer has no argument 'train_data'
  why: an unknown argument would have no effect
  fix: did you mean 'train_dataset'?
""",
    TypeError,
)
def a_misspelt_keyword():
    Trainer(tiny.regression(), arguments(), train_data=ROWS)


@mistake(
    """
processing_class and tokenizer are both given
  why: tokenizer is the old name of processing_class
  fix: leave tokenizer out
""",
    TypeError,
)
def a_tokenizer_twice():
    trainer(tiny.regression(), processing_class=object(), tokenizer=object())


@mistake(
    """
args is a dict, not TrainingArguments
  why: all settings of a run are read from it
  fix: pass args=TrainingArguments(**args)
""",
    TypeError,
)
def arguments_as_a_dict():
    Trainer(tiny.regression(), {"output_dir": "out"})


@mistake(
    """
args is a str, not TrainingArguments
  why: all settings of a run are read from it
  fix: pass args=TrainingArguments(output_dir='out')
""",
    TypeError,
)
def arguments_as_a_path():
    Trainer(tiny.regression(), "out")


@mistake(
    """
model='bert-base-uncased' is a string
  why: the trainer needs a torch.nn.Module, and does not load models by name
  fix: pass AutoModelForSequenceClassification.from_pretrained('bert-base-uncased'), or the class of your task
""",
    TypeError,
)
def a_model_by_name():
    trainer("bert-base-uncased")


@mistake(
    """
model is the class Regression, not a model
  why: a class has no weights
  fix: pass Regression(...), or model_init=Regression to create it when training starts
""",
    TypeError,
)
def a_class_for_a_model():
    trainer(tiny.Regression)


@mistake(
    """
Trainer requires either a model or model_init argument
  why: neither was given
  fix: pass model=..., or model_init=lambda: ... to create a new one for every train()
""",
    RuntimeError,
)
def no_model():
    trainer()


@mistake(
    """
train_dataset='train.csv' is a string
  why: it would be read character by character
  fix: load it first, for instance datasets.load_dataset('csv', data_files='train.csv')['train']
""",
    TypeError,
)
def a_path_for_data():
    trainer(tiny.regression(), train_dataset="train.csv")


@mistake(
    """
compute_metrics=0.5 cannot be called
  why: a float is not a function
  fix: pass the function itself: compute_metrics=my_metrics, where my_metrics(prediction) returns {'accuracy': ...}
""",
    TypeError,
)
def a_number_as_metric():
    trainer(tiny.regression(), compute_metrics=0.5)


@mistake(
    """
there is no metric 'acuracy'
  why: the nearest names are 'accuracy', 'top_k_accuracy', 'token_accuracy'
  fix: choose among NAMES, or 'auto'
""".replace("NAMES", ", ".join(available())),
)
def a_misspelt_metric():
    trainer(tiny.regression(), compute_metrics=["acuracy"])


@mistake(
    """
callbacks is a TrainerCallback, not a list
  why: there can be several callbacks
  fix: put it into a list: callbacks=[...]
""",
    TypeError,
)
def one_callback_alone():
    trainer(tiny.regression(), callbacks=TrainerCallback())


@mistake(
    """
callbacks holds print, which is not a callback
  why: a callback has methods such as on_log; without them it would never be called
  fix: subclass TrainerCallback and put an instance or the class into the list
""",
    TypeError,
)
def a_function_for_a_callback():
    trainer(tiny.regression(), callbacks=[print])


@mistake(
    """
optimizers is a SGD, not a pair
  why: it is an optimizer and a schedule, either of which may be None
  fix: pass optimizers=(optimizer, None)
""",
    TypeError,
)
def an_optimizer_alone():
    trainer(tiny.regression(), optimizers=torch.optim.SGD(tiny.regression().parameters(), lr=0.1))


@mistake(
    """
the optimizer holds no parameter of the model
  why: its steps would update another model and not this one
  fix: create it from model.parameters() of the model you pass, after the last change to the model
"""
)
def an_optimizer_of_another_model():
    trainer(tiny.regression(), optimizers=(torch.optim.SGD(tiny.regression().parameters(), lr=0.1), None))


@mistake(
    """
You have set `args.eval_strategy` to IntervalStrategy.EPOCH but you didn't pass an `eval_dataset` to `Trainer`
  why: there is nothing to evaluate on
  fix: pass eval_dataset=..., or set eval_strategy='no'
"""
)
def evaluation_without_data():
    trainer(tiny.regression(), args=arguments(eval_strategy="epoch"))


@mistake(
    """
The train_dataset does not implement __len__, max_steps has to be specified
  why: the number of steps and the learning rate schedule depend on the length of the data
  fix: set max_steps, or give the data set a __len__
"""
)
def a_stream_without_max_steps():
    trainer(tiny.regression(), train_dataset=tiny.StreamDataset(ROWS))


@mistake(
    """
metric_for_best_model='acuracy' will not be among the evaluation's metrics
  why: there is no compute_metrics, so an evaluation measures loss, runtime, samples_per_second, steps_per_second
  fix: pass compute_metrics=..., returning {'acuracy': ...}
""",
    KeyError,
)
def a_metric_that_nobody_computes():
    args = arguments(eval_strategy="epoch", metric_for_best_model="acuracy")
    trainer(tiny.regression(), args=args, eval_dataset=ROWS).train()


@mistake(
    """
there is no evaluation set 'tests'
  why: eval_dataset holds 'test', 'dev'
  fix: did you mean 'test'?
""",
    KeyError,
)
def an_evaluation_set_that_is_none():
    trainer(tiny.regression(), eval_dataset={"test": ROWS, "dev": ROWS}).evaluate("tests")


@mistake(
    """
2 problems with the arguments:
1. model is the class Regression, not a model
  why: a class has no weights
  fix: pass Regression(...), or model_init=Regression to create it when training starts
2. data_collator='pad' cannot be called
  why: a str is not a function
  fix: pass the function itself: data_collator=DataCollatorWithPadding(tokenizer)
""",
    TypeError,
)
def two_things_of_the_wrong_type():
    trainer(tiny.Regression, data_collator="pad")


@mistake(
    """
gradient_checkpointing=True, but Regression does not support it
  why: the model has no gradient_checkpointing_enable()
  fix: wrap its blocks in torch.utils.checkpoint.checkpoint yourself, or unset the argument
"""
)
def gradient_checkpointing_of_a_plain_module():
    trainer(tiny.regression(), args=arguments(gradient_checkpointing=True)).train()


# ----------------------------------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize("name", MISTAKES)
def test_the_text(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, also, text = MISTAKES[name]
    with pytest.raises(ostinato.OstinatoError) as refusal:
        call()
    assert str(refusal.value) == text
    assert all(isinstance(refusal.value, kind) for kind in (*also, ValueError))
    assert not list(tmp_path.iterdir())  # nothing was written for a run that cannot start


@pytest.mark.parametrize("name", MISTAKES)
def test_few_frames_of_ours_stand_between_the_user_and_the_message(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ostinato.OstinatoError) as refusal:
        MISTAKES[name][0]()
    ours = [frame for frame in refusal.traceback if "/ostinato/" in str(frame.path)]
    assert len(ours) <= 6


# ---------------------------------------------------------------------------------- what is worth a line but no error


def collect_messages(call: Callable[[], Any], capfd: pytest.CaptureFixture[str]) -> list[str]:
    forget_notices()
    capfd.readouterr()
    call()
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"evaluation_strategy": "epoch", "no_cuda": True},
            "ostinato: older argument names: evaluation_strategy is now eval_strategy; no_cuda is now use_cpu",
        ),
        (
            {"fp16": True},
            "ostinato: fp16=True has no effect on a CPU: computing in float32 (bf16=True would have one)",
        ),
        (
            {"eval_strategy": "steps"},
            "ostinato: eval_steps is not set: evaluating every logging_steps=500",
        ),
        ({"num_train_epochs": 0}, "ostinato: num_train_epochs=0: train() takes no step"),
        ({"tf32": True}, "ostinato: tf32=True has no effect on cpu: it has no TensorFloat-32"),
    ],
    ids=str,
)
def test_one_line_once(given: dict[str, Any], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert collect_messages(lambda: (arguments(**given), arguments(**given)), capfd) == [line]


def test_a_tokenizer_under_its_old_name_gets_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    def twice() -> None:
        for _ in range(2):
            assert trainer(tiny.regression(), tokenizer=str).processing_class is str

    assert collect_messages(twice, capfd) == ["ostinato: tokenizer= is now processing_class="]


def test_a_correct_script_says_nothing(capfd: pytest.CaptureFixture[str], tmp_path) -> None:
    def script() -> None:
        args = TrainingArguments(str(tmp_path / "out"), use_cpu=True, eval_strategy="epoch", num_train_epochs=2)
        run = Trainer(tiny.regression(), args, train_dataset=ROWS, eval_dataset=ROWS)
        run.train()
        run.evaluate()
        run.predict(ROWS)
        run.save_model()

    assert collect_messages(script, capfd) == []


def test_a_loader_is_used_as_it_is() -> None:
    loader = DataLoader(ROWS)  # type: ignore[arg-type]
    run = trainer(tiny.regression(), train_dataset=loader, eval_dataset=loader)
    assert run.get_train_dataloader() is run.get_eval_dataloader() is loader
