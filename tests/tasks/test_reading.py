"""Rows from files of every kind, and messages that name the file and the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from ostinato import ConfigError, DataError
from ostinato.tasks.rows import Split, read_splits
from ostinato.tasks.task_arguments import DataArguments

ROWS = [{"text": "a b", "label": 1}, {"text": "c, d", "label": 0}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
GOOD = {
    "rows.csv": 'text,label\na b,1\n"c, d",0\n',
    "rows.tsv": "text\tlabel\na b\t1\nc, d\t0\n",
    "rows.json": json.dumps(ROWS, indent=2),
    "data.json": json.dumps({"version": 1, "data": ROWS}),
    "lines.json": LINES,
    "rows.jsonl": LINES.replace("\n", "\n\n"),
    "ROWS.CSV": 'text,label\r\na b,1\r\n"c, d",0\r\n',
    "mark.csv": '\ufefftext,label\na b,1\n"c, d",0\n',
}


def read(file: str, **more: Any) -> Split:
    return read_splits(DataArguments(train_file=file, **more), ["train"])["train"]


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", GOOD)
def test_files(name: str, is_packed: bool) -> None:
    if is_packed:
        name, content = f"{name}.gz", GOOD[name].encode()
        Path(name).write_bytes(gzip.compress(content))
    else:
        Path(name).write_text(GOOD[name], encoding="utf-8", newline="")
    split = read(name)
    assert list(split.rows) == ROWS
    assert str(split) == f"{name} (2 rows)"
    assert read(name, max_train_samples=1).rows[0] == ROWS[0]


def test_lines_of_text_and_parquet() -> None:
    Path("rows.txt").write_text("first\n\nthird\n")
    assert read("rows.txt").rows["text"][:] == ["first", "", "third"]
    datasets.Dataset.from_list(ROWS).to_parquet("rows.parquet")
    assert list(read("rows.parquet").rows) == ROWS


def test_na_and_null_are_texts() -> None:
    Path("rows.csv").write_text("text,label\nNA,None\nnull,nan\n,x\n")
    assert list(read("rows.csv").rows) == [
        {"text": "NA", "label": "None"},
        {"text": "null", "label": "nan"},
        {"text": None, "label": "x"},
    ]


def test_directories_that_datasets_has_saved() -> None:
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk("one")
    datasets.DatasetDict(train=rows, dev=rows.select([1])).save_to_disk("several")
    assert list(read("one").rows) == ROWS
    assert list(read_splits(DataArguments(dataset_name="one"), ["train"])["train"].rows) == ROWS
    named = DataArguments(dataset_name="several", validation_split_name="dev")
    splits = read_splits(named, ["train", "validation"])
    assert (len(splits["train"]), len(splits["validation"])) == (2, 1)
    assert splits["validation"].source == "several, split 'dev'"
    with pytest.raises(ConfigError, match="--dataset_name several"):
        read("several")
    with pytest.raises(ConfigError, match=r"(?s)there are no validation rows.*--validation_split_name NAME"):
        read_splits(DataArguments(dataset_name="several"), ["train", "validation"])
    with pytest.raises(ConfigError, match=r"(?s)no split 'devv'.*train, dev"):
        read_splits(DataArguments(dataset_name="several", train_split_name="devv"), ["train"])


BROKEN = {
    "empty.csv": (b"", "empty.csv holds no rows"),
    "header.csv": (b"text,label\n", "header.csv holds no rows"),
    "none.json": (b"[]", "none.json holds no rows"),
    "blank.jsonl": (b"\n\n", "blank.jsonl holds no rows"),
    "long.csv": (b"text,label\na,1\nb,c,0\n", "long.csv, row 2: 3 values for 2 columns.*comma.*must be quoted"),
    "long.tsv": (b"text\tlabel\na\t1\nb\tc\t0\n", "long.tsv, row 2: 3 values for 2 columns.*tab"),
    "line.jsonl": (b'{"text": "a"}\n\n{"text": "b\n', "line.jsonl, line 3: not valid JSON"),
    "line.jsonl.gz": (gzip.compress(b'{"text": "a"}\n{"text": \n'), "line.jsonl.gz, line 2: not valid JSON"),
    "lines.json": (b'{"text": "a"}\n{"text": \n', "lines.json, line 2: not valid JSON"),
    "list.jsonl": (b'{"text": "a"}\n[1, 2]\n', "list.jsonl, line 2: a list, not an object"),
    "place.json": (b'[{"text": "a"},\n {"text": ]', "place.json is not JSON.*line 2 column 11"),
    "latin.csv": (b"text,label\nM\xfcller,1\n", "latin.csv, line 2: not valid UTF-8.*iconv"),
    "latin.txt": (b"a\nM\xfcller\n", "latin.txt, line 2: not valid UTF-8"),
    "other.parquet": (b"text", "other.parquet cannot be read as parquet"),
    "other.csv.gz": (b"text,label\na,1\n", "other.csv.gz cannot be read as csv.*[Nn]ot a gzip"),
    "letter.docx": (b"x", "letter.docx: a file of format '.docx' cannot be read.*.csv, .tsv"),
    "rows": (b"x", "rows: a file of format 'unknown' cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    content, message = BROKEN[name]
    Path(name).write_bytes(content)
    with pytest.raises((ConfigError, DataError), match=f"(?s){message}"):
        read(name)
    assert "Failed to" not in "".join(capfd.readouterr())  # what `datasets` would have said


def test_json_that_is_not_utf8_is_an_error() -> None:
    Path("rows.jsonl").write_bytes(b'{"text": "a"}\n{"text": "M\xfcller"}\n')
    with pytest.raises(DataError, match=r"rows.jsonl, line 2: not valid UTF-8"):
        read("rows.jsonl").check_texts("text")


def test_a_missing_path_suggests_a_similar_one() -> None:
    Path("train.csv").write_text("text\na\n")
    Path("folder").mkdir()
    Path("folder/rows.csv").write_text("text\na\n")
    with pytest.raises(ConfigError, match=r"(?s)trian.csv: there is no such file.*did you mean train.csv"):
        read("trian.csv")
    with pytest.raises(ConfigError, match=r"(?s)folder is a directory.*folder.rows\.csv"):
        read("folder")


def test_a_share_of_the_training_rows() -> None:
    Path("rows.txt").write_text("".join(f"{i}\n" for i in range(40)))
    arguments = DataArguments(train_file="rows.txt", validation_split_percentage=25, max_train_samples=3)
    splits = read_splits(arguments, ["train", "validation"])
    assert splits["validation"].rows["text"][:] == [str(i) for i in range(10)]
    assert splits["train"].rows["text"][:] == ["10", "11", "12"]
    with pytest.raises(ConfigError, match="both training and evaluation need rows"):
        read_splits(DataArguments(train_file="rows.txt", validation_split_percentage=1), ["train", "validation"])


def test_rows_need_exactly_one_source() -> None:
    with pytest.raises(ConfigError, match="remove one of them"):
        read_splits(DataArguments(dataset_name="one", train_file="rows.csv"), ["train"])
    with pytest.raises(ConfigError, match="--train_file FILE, or --dataset_name NAME"):
        read_splits(DataArguments(), ["train"])
