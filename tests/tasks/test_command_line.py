"""`ostinato train` as a user sees it: names, help, files of options, plans, samples, caches, kills, processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file

from ostinato import ConfigError
from ostinato.cli import main
from ostinato.tasks import ALIASES, RECIPES, find_recipe, run
from ostinato.tasks.command import parse_command
from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, create_random
from ostinato.tasks.text_classification import TextClassification
from tests.support.task_runs import read_rows, run_apart, write_rows

TASK = "text-classification"
IMPORTS = ("transformers.models.bert", "ostinato.tasks.text_classification")
TINY = [
    *("--model_type", "bert", "--train_tokenizer", "--vocab_size", "300", "--max_seq_length", "24"),
    *("--config_overrides", "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"),
    *("--report_to", "none", "--pad_to_max_length", "false", "--learning_rate", "1e-3"),
]


def sentences(name: str, count: int, seed: int) -> str:
    numbers = create_random(seed)
    subjects = [list(SUBJECTS)[numbers.randrange(4)] for _ in range(count)]
    rows = [{"sentence": build_sentence(subject, numbers), "label": subject} for subject in subjects]
    return write_rows(Path(name), rows)


def command(*more: str, count: int = 40) -> list[str]:
    """A whole run over small files."""
    files = [f"--{split}_file={sentences(f'{split}.jsonl', count, seed)}" for seed, split in enumerate(SPLITS)]
    return [*files, *TINY, "--do_train", "--do_eval", "--do_predict", "--output_dir", "out", *more]


SPLITS = ("train", "validation", "test")


# ---- names --------------------------------------------------------------------------------------------------------


def test_every_task_has_the_name_it_is_found_by() -> None:
    for name in RECIPES:
        recipe = find_recipe(name)
        assert recipe.name == name
        assert recipe.summary.endswith(".") and len(recipe.summary) < 110, name
        assert "\n" not in recipe.summary
    for alias, name in ALIASES.items():
        assert find_recipe(f"run_{alias.replace('-', '_')}.py") is find_recipe(name)


def test_the_list_of_tasks_is_quick() -> None:
    """In a process of its own: what it must not import is imported here."""
    program = (
        "import sys; from ostinato.cli import main; code = main(['train']); "
        "sys.exit(code or ' '.join({'transformers', 'datasets', 'tokenizers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    listed = [line.split()[0] for line in done.stdout.splitlines() if line and not line.startswith((" ", "ostinato"))]
    assert listed == list(RECIPES)
    assert "also: glue, xnli" in done.stdout


WRONG = {
    "a name that is nearly right": (["text-clasification"], "the nearest is 'text-classification'"),
    "no such name": (["cooking"], "use one of text-classification, token-classification"),
    "nothing to do": ([TASK], "there is nothing to do(?s:.*)none of --do_train, --do_eval and --do_predict"),
    "nothing to do, said so": (
        [TASK, "--do_train", "false", "--train_file", "rows.jsonl"],
        "there is nothing to do",
    ),
    "a flag that is nearly right": ([TASK, "--do_train", "--learning_rte", "1"], "did you mean --learning_rate"),
    "a value that is none": ([TASK, "--do_train", "--learning_rate", "high"], "--learning_rate.*invalid float"),
    "a choice that is none": ([TASK, "--do_train", "--dtype", "bf16"], "did you mean bfloat16"),
    "a flag without its value": ([TASK, "--do_train", "--output_dir"], "--output_dir.*expected one argument"),
    "no file": ([TASK, "--config", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
    "no name of a file": ([TASK, "--config"], "--config has no value"),
    "arguments that contradict one another": (
        [TASK, "--do_train", "--fp16", "--bf16"],
        "fp16.*bf16",
    ),
    "a task of GLUE that is none": (["glue", "--do_train", "--task_name", "mrcp"], "GLUE has no task 'mrcp'"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_command_line_ends_with_2(mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = WRONG[mistake]
    assert main(["train", *words]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert re.search(message, told.err, re.DOTALL), told.err
    assert "Traceback" not in told.err


WRONG_ROWS_OR_MODEL = {
    "no rows": (["--do_train"], "(?s)there are no rows.*--train_file FILE"),
    "no rows to evaluate on": (["--do_train", "--do_eval", "--train_file", "train.jsonl"], "--validation_file FILE"),
    "no model": (["--do_train", "--train_file", "train.jsonl"], "(?s)no model is given.*--model_type bert"),
    "no such model": (
        ["--do_train", "--train_file", "train.jsonl", "--model_type", "brt"],
        "(?s)no such model.*--model_type bert",
    ),
    "no tokenizer": (
        ["--do_train", "--train_file", "train.jsonl", "--model_type", "bert"],
        "(?s)no tokenizer is given.*--train_tokenizer",
    ),
    "no directory": (
        ["--do_train", "--train_file", "train.jsonl", "--model_name_or_path", "./nowhere"],
        r"(?s)no config can be loaded from './nowhere'.*check the path",
    ),
    "a config that has no such value": (
        ["--do_train", "--train_file", "train.jsonl", "--model_type", "bert", "--config_overrides", "hiden_size=3"],
        "BertConfig has no 'hiden_size'",
    ),
    "a tokenizer from nothing": (
        ["--do_eval", "--validation_file", "train.jsonl", "--model_type", "bert", "--train_tokenizer"],
        "--train_tokenizer without --do_train",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS_OR_MODEL)
def test_missing_rows_or_model_are_errors_with_a_fix(mistake: str) -> None:
    words, message = WRONG_ROWS_OR_MODEL[mistake]
    sentences("train.jsonl", 10, 0)
    with pytest.raises(ConfigError, match=message):
        run(TASK, words)
    assert not Path("runs").exists()


NAMED_ROWS = {
    "rows to train on": (["--train_file", "a"], (True, False, False), "--do_train, as .*no rows to evaluate on"),
    "rows to evaluate on": (
        ["--train_file", "a", "--validation_file", "b"],
        (True, True, False),
        "--do_train --do_eval, as",
    ),
    "a share of the rows": (["--train_file", "a", "--validation_split_percentage", "9"], (True, True, False), ""),
    "an interval": (
        ["--train_file", "a", "--validation_file", "b", "--eval_strategy", "epoch"],
        (True, True, False),
        "--do_train --do_eval, as",
    ),
    "all rows": (["--train_file", "a", "--validation_file", "b", "--test_file", "c"], (True, True, True), ""),
    "an action": (["--train_file", "a", "--validation_file", "b", "--do_eval"], (False, True, False), None),
    "no action": (
        ["--train_file", "a", "--test_file", "b", "--do_train=false", "--do-predict"],
        (False, False, True),
        None,
    ),
}


@pytest.mark.parametrize("case", NAMED_ROWS)
def test_rows_without_an_action_are_trained_on(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected, message = NAMED_ROWS[case]
    training = parse_command(TASK, words).training
    assert (training.do_train, training.do_eval, training.do_predict) == expected
    lines = [line for line in capsys.readouterr().err.splitlines() if "no action is named" in line]
    assert len(lines) == (message is not None)
    assert message is None or re.search(message, lines[0])


def test_a_saved_dataset_without_an_action_is_trained_on() -> None:
    rows = datasets.Dataset.from_dict({"sentence": ["a"], "label": [0]})
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk("saved")
    training = parse_command(TASK, ["--dataset_name", "saved"]).training
    assert (training.do_train, training.do_eval, training.do_predict) == (True, True, False)


# ---- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", RECIPES)
def test_help_is_readable(task: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["train", task, "--help"]) == 0
    text = capsys.readouterr().out
    titles = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert all(len(line) <= 100 for line in text.splitlines())
    assert titles[:3] == ["options", "Command arguments", "Data arguments"]
    assert titles.index("Model arguments") < titles.index("Run arguments") < titles.index("Schedule arguments")
    assert len(titles) == len(set(titles))
    assert "--config FILE" in text
    assert f"(default: runs/{task})" in " ".join(text.split())
    assert "(default: None)" not in text


COMMON = "dataset_name dataset_config_name max_train_samples max_eval_samples model_name_or_path cache_dir token"
IMAGES = f"{COMMON} config_name model_revision trust_remote_code image_processor_name train_val_split"
SOUND = f"{COMMON} trust_remote_code audio_column_name train_split_name eval_split_name freeze_feature_encoder"
SPEECH = f"{SOUND} text_column_name max_duration_in_seconds preprocessing_num_workers overwrite_cache"
SCRIPT_FLAGS = {  # of transformers' example scripts
    "image-classification": f"{IMAGES} train_dir validation_dir image_column_name label_column_name model_type",
    "image-pretraining-mae": f"{IMAGES} train_dir mask_ratio norm_pix_loss base_learning_rate config_overrides",
    "image-pretraining-mim": f"{IMAGES} mask_patch_size config_name_or_path image_size patch_size encoder_stride",
    "semantic-segmentation": f"{IMAGES} do_reduce_labels reduce_labels",
    "contrastive-image-text": f"{IMAGES} image_column caption_column max_seq_length freeze_vision_model "
    "freeze_text_model tokenizer_name use_fast_tokenizer test_file overwrite_cache preprocessing_num_workers",
    "audio-classification": f"{SOUND} train_file eval_file label_column_name max_length_seconds attention_mask "
    "feature_extractor_name freeze_feature_extractor ignore_mismatched_sizes",
    "speech-recognition-ctc": f"{SPEECH} tokenizer_name_or_path chars_to_ignore eval_metrics unk_token pad_token "
    "word_delimiter_token ctc_zero_infinity layerdrop mask_time_prob target_language adapter_attn_dim",
    "speech-recognition-seq2seq": f"{SPEECH} feature_extractor_name freeze_encoder forced_decoder_ids language task "
    "suppress_tokens apply_spec_augment do_lower_case use_fast_tokenizer",
    "speech-pretraining": "max_gumbel_temperature min_gumbel_temperature gumbel_temperature_decay mask_time_prob "
    "mask_time_length min_duration_in_seconds validation_split_percentage audio_column_name",
}


@pytest.mark.parametrize("task", SCRIPT_FLAGS)
def test_flags_of_the_scripts_for_images_and_sound(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", task, "--help"])
    known = set(re.findall(r"--(\w+)", capsys.readouterr().out))
    assert set(SCRIPT_FLAGS[task].split()) - known == set()


# ---- files of options ---------------------------------------------------------------------------------------------

YAML = """
do_train: true            # of course
train_file: train.jsonl
learning_rate: 1e-4       # YAML takes this for text
num_train_epochs: 2
eval_memory_mb: null
include_for_metrics: []
report_to: [none]
lr_scheduler_kwargs: {num_cycles: 2}
lr_scheduler_type: cosine_with_restarts
rehearse: no
"""


def test_command_line_overrides_a_file_of_options() -> None:
    Path("run.yaml").write_text(YAML)
    for words in (
        ["run.yaml"],
        ["--config", "run.yaml"],
        ["--config=run.yaml", "--seed", "7"],
        ["run.yaml", "--seed=7"],
    ):
        asked = parse_command(TASK, words)
        training = asked.training
        assert (training.do_train, training.learning_rate, training.num_train_epochs) == (True, 1e-4, 2.0)
        assert (training.eval_memory_mb, training.include_for_metrics, training.rehearse) == (None, [], False)
        assert training.lr_scheduler_kwargs == {"num_cycles": 2}
        assert asked.data.train_file == "train.jsonl"
        assert training.seed == (7 if len(words) > 1 and "7" in words[-1] else 42)
    asked = parse_command(
        TASK, ["--learning_rate", "3e-4", "--config", "run.yaml", "--eval_memory_mb", "5", "--rehearse"]
    )
    assert (asked.training.learning_rate, asked.training.eval_memory_mb, asked.training.rehearse) == (3e-4, 5, True)


def test_a_later_file_of_options_overrides() -> None:
    Path("all.json").write_text(json.dumps({"do_train": True, "seed": 1, "eval_memory_mb": None, "max_steps": 5}))
    Path("mine.json").write_text(json.dumps({"seed": 2, "eval_memory_mb": 9}))
    training = parse_command(TASK, ["--config", "all.json", "--config", "mine.json"]).training
    assert (training.seed, training.eval_memory_mb, training.max_steps) == (2, 9, 5)
    training = parse_command(TASK, ["--config", "mine.json", "--config", "all.json"]).training
    assert (training.seed, training.eval_memory_mb) == (1, None)


WRONG_FILES = {
    "a name that is nearly right": ("learning_rat: 1", "run.yaml: there is no option 'learning_rat'.*'learning_rate'"),
    "no such name, and null": ("shouting: null", "run.yaml: there is no option 'shouting'"),
    "a value that is none": ("seed: high", "run.yaml: the value of 'seed' cannot be used.*invalid int value: 'high'"),
    "a choice that is none": ("dtype: bf16", "run.yaml: the value of 'dtype'.*did you mean bfloat16"),
    "a list for a number": ("seed: [1, 2]", "run.yaml"),
    "groups": ("training:\n  seed: 1", "run.yaml: there is no option 'training'"),
    "a list": ("- seed", "run.yaml holds a list"),
    "not YAML": ("seed: [", "run.yaml is not valid YAML.*line"),
    "another file": ("config: other.yaml", "run.yaml names another file"),
}


@pytest.mark.parametrize("mistake", WRONG_FILES)
def test_mistakes_in_a_file_name_the_file(mistake: str) -> None:
    content, message = WRONG_FILES[mistake]
    Path("run.yaml").write_text(content)
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        parse_command(TASK, ["--config", "run.yaml"])


# ---- samples and plans --------------------------------------------------------------------------------------------


def test_flags_override_those_of_a_sample() -> None:
    Path("run.json").write_text(json.dumps({"num_train_epochs": 2, "learning_rate": 0.5}))
    asked = parse_command(
        TASK, ["--sample", "--max_train_samples", "50", "--config", "run.json", "--learning_rate", "0.1"]
    )
    assert asked.data.max_train_samples == 50
    assert (asked.training.learning_rate, asked.training.num_train_epochs) == (0.1, 2.0)
    assert asked.training.do_train and asked.training.rehearse
    assert asked.data.train_file == str(Path(f"runs/{TASK}/data/train.jsonl"))


def test_a_plan_describes_the_rows_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = command("--plan", "--max_train_samples", "24", "--num_train_epochs", "5")
    assert main(["train", TASK, *words]) == 0
    told = capsys.readouterr().out
    assert "train.jsonl (24 rows): sentence, label" in told
    assert "encoded: 24 rows of" in told
    first = json.loads(Path("train.jsonl").read_text().splitlines()[0])["sentence"]
    assert first.split()[0] in told.split("the first row as the model reads it")[1].splitlines()[1]
    assert "15 steps" in told
    assert sorted(path.name for path in Path().iterdir()) == ["cache", "test.jsonl", "train.jsonl", "validation.jsonl"]


def test_a_plan_without_training(capsys: pytest.CaptureFixture[str]) -> None:
    run(TASK, command("--max_steps", "1"))
    words = ["--model_name_or_path", "out", "--validation_file", "validation.jsonl", "--do_eval", "--plan"]
    assert main(["train", TASK, *words]) == 0
    assert capsys.readouterr().out.rstrip().endswith("No training.")


# ---- encoding -----------------------------------------------------------------------------------------------------


def test_a_second_run_encodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = TextClassification.encode
    monkeypatch.setattr(
        TextClassification, "encode", lambda self, rows, split: encoded.append(split) or encode(self, rows, split)
    )
    words = command("--max_steps", "1")
    place = run(TASK, words).trainer.train_dataset.cache_files
    assert sorted(set(encoded)) == sorted(SPLITS)
    for more, expected in (
        ([], set()),
        (["--learning_rate", "1e-2", "--seed", "3", "--output_dir", "other"], set()),
        (["--max_eval_samples", "8"], {"validation"}),
        (["--max_seq_length", "16"], set(SPLITS)),
        (["--overwrite_cache"], set(SPLITS)),
    ):
        encoded.clear()
        finished = run(TASK, [*words, *more])
        assert set(encoded) == expected, more
    assert finished.trainer.train_dataset.cache_files == place  # written anew where the next run looks for it
    sentences("train.jsonl", 40, 77)
    encoded.clear()
    run(TASK, words)
    assert "train" in encoded


def test_several_processes_encode_the_same() -> None:
    alone = run(TASK, command("--max_steps", "1")).trainer.train_dataset
    words = command("--max_steps", "1", "--preprocessing_num_workers", "2", "--overwrite_cache")
    environment = os.environ
    together = run(TASK, words).trainer.train_dataset
    assert list(alone) == list(together)
    assert os.environ is environment  # datasets would leave a copy in its place


def test_max_samples_limits_rows() -> None:
    finished = run(TASK, command("--max_train_samples=30", "--max_eval_samples=7", "--max_predict_samples=5"))
    assert [finished.metrics[f"{name}_samples"] for name in ("train", "eval", "predict")] == [30, 7, 5]
    assert len(read_rows(Path("out/predictions.jsonl"))) == 5


# ---- going on -----------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from ostinato import TrainerCallback
from ostinato.tasks import run
from ostinato.tasks.text_classification import TextClassification

class Kill(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 8:
            os.kill(os.getpid(), signal.SIGKILL)

class Killed(TextClassification):
    def get_trainer_arguments(self, splits, features):
        return {**super().get_trainer_arguments(splits, features), "callbacks": [Kill()]}

run(Killed, sys.argv[1:])
"""


def test_a_killed_run_resumes_bit_for_bit(shelf: Path) -> None:
    """Every weight as if nothing had happened; the tokenizer, too, is trained once more."""
    words = command("--max_steps", "10", "--save_steps", "3", "--per_device_train_batch_size", "8")
    whole = run(TASK, [*words, "--output_dir", "whole"]).trainer
    done = run_apart(KILLED, words, shelf, IMPORTS)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not Path("out/model.safetensors").exists()
    assert Path("out/checkpoint-3").is_dir()  # the next one is being written in the background
    resumed = run(TASK, [*words, "--resume_from_checkpoint", "true"]).trainer
    assert resumed.state.global_step == 10
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name
    saved = load_file("whole/model.safetensors")
    assert all(torch.equal(weight, saved[name]) for name, weight in load_file("out/model.safetensors").items())
    assert Path("out/tokenizer.json").read_text() == Path("whole/tokenizer.json").read_text()
    assert Path("out/predictions.jsonl").read_text() == Path("whole/predictions.jsonl").read_text()


def test_a_trained_directory_evaluates_and_predicts() -> None:
    trained = run(TASK, command("--num_train_epochs", "2")).metrics
    words = ["--validation_file", "validation.jsonl", "--test_file", "test.jsonl", "--do_eval", "--do_predict"]
    words += ["--max_seq_length", "24", "--pad_to_max_length", "false", "--output_dir", "again"]
    again = run(TASK, ["--model_name_or_path", "out", *words]).metrics
    for name in ("eval_loss", "eval_accuracy", "predict_loss", "predict_accuracy"):
        assert again[name] == trained[name]
    assert Path("again/predictions.jsonl").read_text() == Path("out/predictions.jsonl").read_text()
    assert not Path("again/model.safetensors").exists()


NO_DROPOUT = (
    "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32,"
    "hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0"
)


def test_two_processes(shelf: Path) -> None:
    """The same weights as one process with twice the batch; predictions in the order of the rows, each once."""
    words = command("--max_steps", "4", "--save_strategy", "no", "--config_overrides", NO_DROPOUT, count=45)
    one = run(TASK, [*words, "--output_dir", "one", "--per_device_train_batch_size", "8"])
    words = ["train", TASK, *words, "--per_device_train_batch_size", "4", "--use_cpu"]
    program = "import sys\nfrom ostinato.cli import main\nsys.exit(main())"
    done = run_apart(program, words, shelf, IMPORTS, processes=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tokenizer: trained on") == 1  # said once
    assert Path("out/tokenizer.json").read_text() == Path("one/tokenizer.json").read_text()
    saved = load_file("out/model.safetensors")
    for name, weight in one.trainer.model.state_dict().items():
        torch.testing.assert_close(saved[name], weight, atol=1e-5, rtol=1e-4)
    rows = read_rows(Path("out/predictions.jsonl"))
    assert [row["sentence"] for row in rows] == [row["sentence"] for row in read_rows(Path("test.jsonl"))]
    results: dict[str, Any] = json.loads(Path("out/all_results.json").read_text())
    assert (results["eval_samples"], results["predict_samples"]) == (45, 45)
