"""Rows that cannot be read or joined: whose error it is, which row it names, and what is left alone."""

from __future__ import annotations

import torch

from ostinato import Trainer, TrainingArguments
from tests.support import tiny


class AsksForItself(torch.utils.data.IterableDataset):
    """Takes its share of the rows by what torch tells its workers, as torch's documentation shows it."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        assert info.dataset.rows == self.rows
        return iter(self.rows[info.id :: info.num_workers])


def test_a_worker_sees_the_data_set_of_the_user(tmp_path):
    rows = [{"x": [float(number)] * 4, "labels": float(number)} for number in range(8)]
    args = TrainingArguments(str(tmp_path), use_cpu=True, max_steps=2, dataloader_num_workers=2, save_strategy="no")
    Trainer(tiny.regression(), args, train_dataset=AsksForItself(rows)).train()
