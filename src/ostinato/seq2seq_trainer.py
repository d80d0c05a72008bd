"""`Seq2SeqTrainer`: a Trainer whose evaluations can measure generated texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .arguments import generation_settings, usage_errors
from .arguments.generation_settings import GenerationSettings
from .arguments.training_args import TrainingArguments
from .callbacks.events import TrainerCallback
from .core.notices import note_once
from .core.outputs import PredictionOutput
from .core.protocols import Batch, Strategy
from .core.tree import first_dimension
from .evaluation.generate import find_filler, generate, get_configured_width, pad_to_width
from .trainer import Trainer


class Seq2SeqTrainer(Trainer):
    """Train as `Trainer` does; with `predict_with_generate=True`, `evaluate` and `predict` use generated ids.

    Args:
        model: The model; this and all others are those of `Trainer`.
        args: `Seq2SeqTrainingArguments`.

    >>> args = Seq2SeqTrainingArguments("out", predict_with_generate=True)  # doctest: +SKIP
    >>> Seq2SeqTrainer(model, args, eval_dataset=rows, compute_metrics=exact).evaluate(num_beams=4)  # doctest: +SKIP
    """

    _gen_kwargs: dict[str, Any] | None = None  # of the current evaluation, or of the last one
    _is_evaluating = False

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., nn.Module] | None = None,
        compute_loss_func: Callable[..., Tensor] | None = None,
        compute_metrics: Any = None,
        callbacks: list[TrainerCallback | type[TrainerCallback]] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        *,
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        tokenizer: Any = None,
        strategy: Strategy | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        metrics: Any = None,
        train_metrics: Any = None,
    ) -> None:
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            model_init=model_init,
            compute_loss_func=compute_loss_func,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
            tokenizer=tokenizer,
            strategy=strategy,
            sampler=sampler,
            batch_sampler=batch_sampler,
            metrics=metrics,
            train_metrics=train_metrics,
        )

    def _adopt_model(self) -> None:
        super()._adopt_model()
        settings = GenerationSettings.of(self.args)
        if settings.config is not None:
            config: Any = self.load_generation_config(settings.config)
            self.model.generation_config = config
        if settings.in_evaluation and not callable(getattr(self.model, "generate", None)):
            raise usage_errors.cannot_generate(self.model)

    @staticmethod
    def load_generation_config(gen_config_arg: Any) -> Any:
        """Return a `GenerationConfig`.

        Args:
            gen_config_arg: a config, a dict, a directory, a file or a name on the hub.

        Returns:
            The config.
        """
        return generation_settings.load_generation_config(gen_config_arg)

    # ---- evaluation ------------------------------------------------------------------------------------------

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Evaluate as `Trainer.evaluate` does, with options for `generate`.

        Args:
            eval_dataset: see `Trainer.evaluate`.
            ignore_keys: see `Trainer.evaluate`.
            metric_key_prefix: see `Trainer.evaluate`.
            **gen_kwargs: passed to `generate` (`max_length`, `num_beams`, …).

        Returns:
            The metrics.
        """
        with self._use_generation_options(gen_kwargs):
            return super().evaluate(eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """Predict as `Trainer.predict` does, with options for `generate`.

        Args:
            test_dataset: see `Trainer.predict`.
            ignore_keys: see `Trainer.predict`.
            metric_key_prefix: see `Trainer.predict`.
            **gen_kwargs: passed to `generate` (`max_length`, `num_beams`, …).

        Returns:
            Predictions, labels and metrics.
        """
        with self._use_generation_options(gen_kwargs):
            return super().predict(test_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    @contextmanager
    def _use_generation_options(self, given: dict[str, Any]) -> Iterator[None]:
        """Generate with these options while entered; they apply to all sets of a dict of sets."""
        settings, outside = GenerationSettings.of(self.args), self._is_evaluating
        if given and not settings.in_evaluation:
            note_once(f"nothing is generated: predict_with_generate is not set, and {', '.join(given)} has no effect")
        if given or not outside:
            self._gen_kwargs = settings.options(given)
        self._is_evaluating = True
        try:
            yield
        finally:
            self._is_evaluating = outside

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Batch,
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Tensor | None, Any, Any]:
        """Return loss, generated ids and labels of one batch; the loss is that of the labels, not of the ids."""
        settings = GenerationSettings.of(self.args)
        if prediction_loss_only or not settings.in_evaluation:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        options = gen_kwargs or (settings.options({}) if self._gen_kwargs is None else self._gen_kwargs)
        ids = generate(
            self.model,
            self._prepare_inputs(inputs),
            options,
            label_names=self.label_names,
            in_step=self.strategy.is_sharded,
        )
        rows = first_dimension(inputs) or len(ids)
        if self.args.world_size > 1 and len(ids) != rows:
            raise usage_errors.several_texts_per_row(rows, len(ids))
        if not self.label_names or any(inputs.get(name) is None for name in self.label_names):
            return None, self._fill_up(ids), None
        loss, _, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        return loss, self._fill_up(ids), self._fill_up(labels)

    @property
    def _prediction_padding(self) -> int:
        """The padding of generated ids, which can be decoded."""
        generates = GenerationSettings.of(self.args).in_evaluation
        filler = find_filler(self.processing_class, self.model) if generates else None
        return super()._prediction_padding if filler is None else filler

    def _fill_up(self, ids: Any) -> Any:
        """Pad ids if a subclass overrides the padding; else leave them unchanged until all batches are known."""
        width = get_configured_width(self.model)
        if not self._is_overridden("_pad_tensors_to_max_len") or not isinstance(ids, Tensor) or ids.shape[-1] >= width:
            return ids
        return self._pad_tensors_to_max_len(ids, width)

    def _pad_tensors_to_max_len(self, tensor: Tensor, max_length: int) -> Tensor:
        """Pad ids and labels to a length. Evaluation calls it if a subclass overrides it."""
        return pad_to_width(tensor, max_length, self._prediction_padding)

    def _is_overridden(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(Seq2SeqTrainer, method) or method in vars(self)
