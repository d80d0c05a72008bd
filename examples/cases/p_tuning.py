"""P-tuning in the manner of ChatGLM2's scripts: only a prefix is trained, and only the prefix is saved.

    python examples/cases/p_tuning.py

A small GLM-like model is built from a configuration. It learns to copy a word, or to repeat its first letter if the
prompt begins with a sign. Then it is frozen, and a prefix of a few trained positions takes the place of the sign.
`PrefixTrainer` saves the parameters of the prefix alone; `PrefixSeq2SeqTrainer` has a prediction step that generates.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ostinato import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments, set_seed

LETTERS = "abcdefgh!"  # the last one is the sign
PAD, START, END = 0, 1, 2  # the ids of the special tokens; a letter is 3 and more
IGNORED = -100


@dataclass
class GLMConfig:
    vocab_size: int = 3 + len(LETTERS)
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 4
    max_length: int = 32
    prefix_length: int = 0  # 0: no prefix


class Block(nn.Module):
    def __init__(self, config: GLMConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_heads
        self.norm, self.norm_after = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query_key_value, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.feed_forward = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, hidden, mask, past=None):
        """`past` holds keys and values of the prefix: positions that every token may look at."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.query_key_value(self.norm(hidden)).chunk(3, -1)
        )
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(-2))
        return hidden + self.feed_forward(self.norm_after(hidden))


class PrefixEncoder(nn.Module):
    """Keys and values of the prefix, for every layer."""

    def __init__(self, config: GLMConfig) -> None:
        super().__init__()
        self.config = config
        width = 2 * config.num_layers * config.hidden_size
        self.embedding = nn.Embedding(config.prefix_length, width)

    def forward(self, batch_size: int):
        config = self.config
        values = self.embedding.weight.expand(batch_size, -1, -1)
        shape = (2 * config.num_layers, config.num_heads, config.hidden_size // config.num_heads)
        by_layer = values.unflatten(-1, shape).permute(2, 0, 3, 1, 4)  # (2 * layers, rows, heads, length, size)
        return list(zip(by_layer[0::2], by_layer[1::2]))


class GLMForGeneration(nn.Module):
    """A model that sees the prompt in both directions and writes the answer from left to right, as GLM does."""

    def __init__(self, config: GLMConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(config.max_length, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.1)
        self.prefix_encoder = None
        if config.prefix_length:
            self.prefix_encoder = PrefixEncoder(config)
            for name, parameter in self.named_parameters():
                parameter.requires_grad = name.startswith("prefix_encoder.")

    def forward(self, input_ids, prompt_length, labels=None):
        rows, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device)
        hidden = self.tokens(input_ids) + self.places(places)
        sees = (places[None, :] <= places[:, None])[None] | (places[None, None, :] < prompt_length[:, None, None])
        past = self.prefix_encoder(rows) if self.prefix_encoder is not None else [None] * len(self.layers)
        if self.prefix_encoder is not None:
            always = torch.ones(rows, length, self.config.prefix_length, dtype=torch.bool, device=input_ids.device)
            sees = torch.cat([always, sees.expand(rows, -1, -1)], -1)
        for layer, keys_and_values in zip(self.layers, past):
            hidden = layer(hidden, sees[:, None], keys_and_values)
        logits = self.norm(hidden) @ self.tokens.weight.T
        loss = None
        if labels is not None:  # each position predicts the next token
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}

    @torch.no_grad()
    def generate(self, input_ids, prompt_length, max_new_tokens=10):
        """Write the most likely answer to prompts of one length."""
        for _ in range(max_new_tokens):
            following = self(input_ids, prompt_length)["logits"][:, -1].argmax(-1, keepdim=True)
            ended = (input_ids[:, prompt_length.max() :] == END).any(1, keepdim=True)
            input_ids = torch.cat([input_ids, following.masked_fill(ended, PAD)], 1)
        return input_ids[:, prompt_length.max() :]


class PrefixTrainer(Trainer):
    """Save only what is trained, and load it into a model that has the rest.

    Args:
        save_changed: Save the parameters that are trained, and not the whole model.
    """

    def __init__(self, *args, save_changed: bool = True, **kwargs) -> None:
        self.save_changed = save_changed
        super().__init__(*args, **kwargs)

    def _save(self, output_dir=None, state_dict=None):
        if not self.save_changed:
            return super()._save(output_dir, state_dict)
        directory = Path(output_dir or self.args.output_dir)
        directory.mkdir(parents=True, exist_ok=True)
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        weights = state_dict if state_dict is not None else self.model.state_dict()
        save_file(
            {name: value for name, value in weights.items() if name in trained}, directory / "prefix.safetensors"
        )
        return None

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        if not self.save_changed:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        saved = load_file(Path(resume_from_checkpoint) / "prefix.safetensors")
        (model or self.model).load_state_dict(saved, strict=False)
        return None


class PrefixSeq2SeqTrainer(PrefixTrainer, Seq2SeqTrainer):
    """Answers are generated in evaluations: the prompt is cut off, and so is what follows the answer in the labels."""

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss = self.compute_loss(model, dict(inputs)).detach()
        length = int(inputs["prompt_length"][0])  # prompts of a batch have one length
        answers = self.model.generate(inputs["input_ids"][:, :length], inputs["prompt_length"])
        return loss, answers, inputs["labels"][:, length:]


def encode(prompt: str, answer: str) -> dict[str, object]:
    ids = [3 + LETTERS.index(letter) for letter in prompt] + [START]
    wanted = [3 + LETTERS.index(letter) for letter in answer] + [END]
    return {"input_ids": ids + wanted, "prompt_length": len(ids), "labels": [IGNORED] * len(ids) + wanted}


def make_rows(count: int, answer, seed: int):
    draw = random.Random(seed)
    prompts = ["".join(draw.choices(LETTERS[:-1], k=4)) for _ in range(count)]
    return [encode(*answer(prompt)) for prompt in prompts]


def copy_or_repeat(prompt: str) -> tuple[str, str]:
    """What the model is trained on: with the sign, the first letter is repeated; otherwise the prompt is copied."""
    return (f"!{prompt}", prompt[0] * 4) if prompt[-1] in "aceg" else (f"{prompt[0]}{prompt}", prompt)


def repeat(prompt: str) -> tuple[str, str]:
    """What the prefix is trained on: the first letter is repeated although there is no sign."""
    return f"{prompt[0]}{prompt}", prompt[0] * 4


def decode(ids) -> str:
    letters = [LETTERS[i - 3] for i in ids if i >= 3]
    return "".join(letters)


def compute_metrics(prediction):
    pairs = list(zip(prediction.predictions, prediction.label_ids))
    return {"exact": sum(decode(answer) == decode(wanted) for answer, wanted in pairs) / len(pairs)}


def main(base_epochs: int = 6, epochs: int = 8, directory: str = "runs/p_tuning") -> dict[str, float]:
    """Train the model, then the prefix.

    Returns:
        How often the answer is right with the prefix, when it is loaded again, and without it; the sizes of the files.
    """
    set_seed(0)
    base = GLMForGeneration(GLMConfig())
    args = TrainingArguments(
        f"{directory}/base", num_train_epochs=base_epochs, learning_rate=3e-3, per_device_train_batch_size=64
    )
    base_trainer = Trainer(base, args, train_dataset=make_rows(3000, copy_or_repeat, seed=1))
    base_trainer.train()
    base_trainer.save_model(f"{directory}/base")

    def build(with_prefix: bool) -> GLMForGeneration:
        model = GLMForGeneration(GLMConfig(prefix_length=8 if with_prefix else 0))
        model.load_state_dict(base.state_dict(), strict=False)
        return model

    model, test = build(with_prefix=True), make_rows(100, repeat, seed=3)
    trainer = PrefixSeq2SeqTrainer(
        model,
        Seq2SeqTrainingArguments(
            f"{directory}/prefix",
            num_train_epochs=epochs,
            learning_rate=1e-2,
            per_device_train_batch_size=64,
            predict_with_generate=True,
            save_strategy="epoch",
            save_total_limit=1,
        ),
        train_dataset=make_rows(1500, repeat, seed=2),
        eval_dataset=test,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    found = {"with prefix": trainer.evaluate()["eval_exact"]}

    newest = sorted(Path(f"{directory}/prefix").glob("checkpoint-*"))[-1]
    again = build(with_prefix=True)
    again.load_state_dict(load_file(newest / "prefix.safetensors"), strict=False)
    for name, other in (("loaded again", again), ("without prefix", build(with_prefix=False))):
        trainer.model = other
        found[name] = trainer.evaluate()["eval_exact"]
    found["bytes of the prefix"] = (newest / "prefix.safetensors").stat().st_size
    found["bytes of the model"] = Path(f"{directory}/base/model.safetensors").stat().st_size
    print(
        f"\nright answers: {found['with prefix']:.0%} with the prefix, {found['loaded again']:.0%} when it is loaded "
        f"again, {found['without prefix']:.0%} without; saved: {found['bytes of the prefix']:,} of "
        f"{found['bytes of the model']:,} bytes"
    )
    return found


if __name__ == "__main__":
    main()
