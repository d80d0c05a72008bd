"""What differs between a CPU and an accelerator, test by test: tests that have to fail there, and that cannot be run.

The keys are the beginnings of names. A test that has to fail and passes is an error: the first list has nothing
superfluous. The second list is of what a pretended device cannot do, and of what transformers cannot do on it.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------------- have to fail

STREAMS = "dropout draws from the stream of the device, which is another than the host's"
TIED = "transformers trains tied weights apart on a device that it does not know"
LATE = "an update is judged after the next backward pass, when its step is counted already"

EVERYWHERE = {
    "tests/golden/test_golden.py::test_logged_numbers[dropout_and_cosine]": STREAMS,
    "tests/contract/test_foreign_checkpoints.py::test_where_transformers_itself_loses_its_place[an epoch's end]": (
        "transformers loses its place in the stream of the host, and here dropout does not draw from that"
    ),
    "tests/contract/test_hooks_take_effect.py::test_random_state_in_a_file_of_its_own": (
        "the override keeps the state of the host alone"
    ),
    "tests/contract/test_promises.py::test_patience[": LATE,
    "tests/contract/test_parity_memory.py::test_caches_are_emptied_between_forward_and_backward[": (
        "the test lets transformers, which would use this device, find another one"
    ),
}
NAMED = {  # only where transformers knows the device by name
    "tests/contract/test_refused_values.py::test_refused_values_are_on_the_page": "tf32 is set there, and checked",
    "tests/contract/test_parity_memory.py::test_nothing_is_emptied_on_a_cpu": "there is a cache, and it is emptied",
}
UNNAMED = {
    **dict.fromkeys(
        [
            f"tests/contract/test_parity_models.py::{name}"
            for name in (
                "test_tied_weights",
                "test_cache_of_keys_and_values[",
                "test_sequence_to_sequence",
                "test_gpt2_without_a_loss_type",
            )
        ],
        TIED,
    ),
    "tests/contract/test_surface.py::test_every_public_attribute_of_their_arguments[": (
        "transformers counts no devices of a kind that it does not know"
    ),
}
DIFFERENCES: dict[str, dict[str, str]] = {
    "real": {**EVERYWHERE, **NAMED},
    "cuda": {**EVERYWHERE, **NAMED},
    "privateuse1": {**EVERYWHERE, **UNNAMED},
}

# ------------------------------------------------------------------------------------------------------ not to be run

COMPILED = {"tests/contract/test_parity_compile.py::": "a pretended device cannot be traced by a compiler"}
HALF = "transformers refuses half precision on a device that it does not know"
STATES = "transformers does not keep the generators of a device that it does not know"
PLACE = "transformers is told of this device by a variable, against which use_cpu does nothing"
UNKNOWN = {
    "tests/contract/test_foreign_checkpoints.py::": STATES,
    "tests/contract/test_hooks_take_effect.py::test_going_on_without_overrides": STATES,
    "tests/contract/test_hooks_take_effect.py::test_optimizer_in_a_file_of_its_own": STATES,
    "tests/contract/test_hooks_take_effect.py::test_optimizer_not_loaded": STATES,
    "tests/contract/test_hooks_take_effect.py::test_ids_filled_up_otherwise": PLACE,
    "tests/contract/test_hooks_take_effect.py::test_own_generation_config": PLACE,
    "tests/contract/test_parity_row_order.py::": PLACE,
    "tests/contract/test_parity_seq2seq.py::": PLACE,
    "tests/contract/test_what_clients_do.py::test_loggers_of_accelerate_work_before_there_is_a_trainer": PLACE,
    "tests/contract/test_parity_optimizers.py::test_classes_are_called_as_by_transformers[": PLACE,
    "tests/contract/test_parity_optimizers.py::test_layerwise_adafactor_gets": PLACE,
    "tests/contract/test_parity_numerics.py::test_bf16": HALF,
    "tests/contract/test_parity_numerics.py::test_loss_function_under_autocast[True]": HALF,
    "tests/contract/test_parity_peft.py::test_the_same_run_with[{'bf16': True}]": HALF,
    "tests/contract/test_helper_names.py::test_a_stage_is_measured_by_the_name_of_the_method": (
        "transformers does not measure the memory of a device that it does not know"
    ),
}
NOT_RUN: dict[str, dict[str, str]] = {"real": {}, "cuda": COMPILED, "privateuse1": {**COMPILED, **UNKNOWN}}


def find_reason(test: str, reasons: dict[str, str]) -> str | None:
    """Return why a test is listed, by the beginning of its name."""
    return next((reason for name, reason in reasons.items() if test.startswith(name)), None)
