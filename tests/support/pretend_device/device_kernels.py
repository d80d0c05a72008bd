"""Kernels of the device: one that runs any operation on host views, and those that allocate and copy.

What the host has to wait for is known from torch's own tags: an operation whose result has a shape that depends on
numbers, or is itself a number of the host, cannot return before the device is done.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.support.pretend_device.device_generators import find_generator
from tests.support.pretend_device.device_memory import MEMORY, PINNED
from tests.support.pretend_device.device_queue import TIMELINE, LateCopy, UnorderedAccess, raise_if_dead
from tests.support.pretend_device.device_settings import DEVICE, is_here
from tests.support.pretend_device.host_waits import find_line, note_wait
from tests.support.pretend_device.torch_internals import make_view, seat_tensor

HOST = torch.device("cpu")
WAITING_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
WAITING = {"multinomial", "_linalg_check_errors"}  # look at their numbers too, and have no such tag
MASKED = {"index", "index_put", "index_put_", "_index_put_impl_"}  # wait if an index is a mask
TAKES_HOST_TENSORS = MASKED | {"copy_", "_copy_from", "_to_copy", "set_"}
CONVOLUTIONS = ["convolution", "convolution_backward"]  # would choose among kernels that a build for CPUs lacks
COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
SOFTMAXES = {"_softmax", "_log_softmax"}
SOFTMAX_GRADIENTS = {"_softmax_backward_data", "_log_softmax_backward_data"}
DEVICE_CHECKS = ("out of range", "out of bounds", "between 0 and 1", "probability tensor")
LIBRARIES: list[torch.library.Library] = []


def run_kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run any operation: on the host, with views of what the device's tensors hold."""
    flat, spec = tree_flatten((args, kwargs))
    _check_devices(op, flat)
    raise_if_dead_for_long()
    hosts = [_to_host(value) for value in flat]
    writes = _find_writes(op, args, kwargs)
    _enqueue(op, flat, writes)
    if _waits(op, args):
        TIMELINE.wait_for_stream(_name(op))
    host_args, host_kwargs = tree_unflatten(hosts, spec)
    result = _compute(op, host_args, host_kwargs, next((g for g in flat if isinstance(g, torch.Generator)), None))
    _follow_shapes(flat, hosts)
    return _to_device(op, result, flat, hosts)


def raise_if_dead_for_long() -> None:
    """Raise if the host has been told of the death of the device: from then on nothing works."""
    if DEVICE.death and DEVICE.is_death_known:
        raise_if_dead()


def _name(op: Any) -> str:
    name = op._schema.name.removeprefix("aten::")
    return "item" if name == "_local_scalar_dense" else name


def _check_devices(op: Any, flat: list[Any]) -> None:
    if _name(op) in TAKES_HOST_TENSORS:
        return
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    if any(map(is_here, tensors)) and any(one.device.type == "cpu" and one.dim() for one in tensors):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{DEVICE.device} and cpu! (when checking arguments of {op._schema.name})"
        )


def _to_host(value: Any) -> Any:
    if is_here(value):
        return MEMORY.view(value)
    if isinstance(value, torch.device) and value.type == DEVICE.type:
        return HOST
    return None if isinstance(value, torch.Generator) else value


def _find_writes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """Return the ids of the tensors that an operation changes."""
    written: set[int] = set()
    for place, parameter in enumerate(op._schema.arguments):
        if parameter.alias_info is not None and parameter.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(parameter.name)
            written |= {id(one) for one in (value if isinstance(value, (list, tuple)) else [value])}
    return written


def _enqueue(op: Any, flat: list[Any], writes: set[int]) -> None:
    """Launch a kernel, which uses memory; views need none."""
    if op.is_view:
        return
    stream, number = TIMELINE.launch()
    for value in flat:
        if is_here(value) and (buffer := MEMORY.find(value)) is not None:
            buffer.use.note(stream, number, writes=id(value) in writes)


def _waits(op: Any, args: tuple[Any, ...]) -> bool:
    name = _name(op)
    if name in MASKED:
        return _looks_at_masks(name, args)
    if name == "repeat_interleave":
        return op._overloadname == "Tensor"
    return name in WAITING or bool(WAITING_TAGS & set(op.tags))


def _looks_at_masks(name: str, args: tuple[Any, ...]) -> bool:
    indices = [index for index in args[1] or () if isinstance(index, torch.Tensor)]
    if any(index.device.type == "cpu" for index in indices):
        return True  # they are copied to the device first
    masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
    fills = name != "index" and len(indices) == 1 and isinstance(args[2], torch.Tensor) and args[2].numel() == 1
    return bool(masks) and not fills


def _compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], generator: torch.Generator | None) -> Any:
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    with (
        torch._C._AutoDispatchBelowAutograd(),
        torch.no_grad(),
        find_generator(generator).draw() if is_random else contextlib.nullcontext(),
    ):
        try:
            return _call(op, args, kwargs)
        except (IndexError, RuntimeError) as error:
            if not DEVICE.late_asserts or not any(text in str(error) for text in DEVICE_CHECKS):
                raise
            return _die(op, args, kwargs, error)


def _call(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operation on the host, whose kernels of a softmax refuse to change the precision on the way."""
    name = _name(op)
    if name in SOFTMAXES:
        numbers, dim, widens = args
        return op(numbers.float() if widens else numbers, dim, False)
    if name in SOFTMAX_GRADIENTS:
        gradient, output, dim, dtype = args
        return op(gradient, output, dim, gradient.dtype).to(dtype)
    try:
        return op(*args, **kwargs)
    except RuntimeError as error:
        if "Expected a value of type 'Tensor'" not in str(error):
            raise
    return op(*_wrap_numbers(op, args), **kwargs)


def _wrap_numbers(op: Any, args: tuple[Any, ...]) -> list[Any]:
    """Return arguments with tensors where the operation takes nothing else: a fallback gets `x % 2` with a number."""
    is_float = any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in args)

    def wrap(parameter: Any, value: Any) -> Any:
        if not isinstance(value, (int, float)) or parameter.type.kind() != "TensorType":
            return value
        return torch.tensor(value, dtype=torch.float64 if is_float else None)

    return [wrap(*pair) for pair in zip(op._schema.arguments, args, strict=False)]


def _die(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
    """A kernel found a number that must not be: go on with garbage; the host hears of it when it waits next.

    What is wrong with shapes and arguments is found without looking at numbers, and raised at once.
    """
    meta = tree_map(lambda one: one.to("meta") if isinstance(one, torch.Tensor) else one, (args, kwargs))
    try:
        shapes = op(*meta[0], **meta[1])
    except Exception:
        raise error from None
    DEVICE.death = (
        f"{DEVICE.type.upper()} error: device-side assert triggered\n{DEVICE.type.upper()} kernel errors might be "
        "asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    )
    DEVICE.is_death_known = False
    return tree_map(
        lambda one: torch.full_like(one, 0, device="cpu") if isinstance(one, torch.Tensor) else one, shapes
    )


def _follow_shapes(flat: list[Any], hosts: list[Any]) -> None:
    """Give tensors of the device the shapes that their views were given (`out=`, `resize_`)."""
    for value, host in zip(flat, hosts, strict=True):
        if is_here(value) and (host.shape != value.shape or host.stride() != value.stride()):
            buffer = MEMORY.find(value)
            if buffer is not None and buffer.host._cdata == host.untyped_storage()._cdata and _fits(host, value):
                seat_tensor(value, value.untyped_storage(), host)
            else:
                MEMORY.reseat(value, host)


def _fits(host: torch.Tensor, value: torch.Tensor) -> bool:
    return host.untyped_storage().nbytes() <= value.untyped_storage().nbytes()


def _to_device(op: Any, result: Any, flat: list[Any], hosts: list[Any]) -> Any:
    """Return results as the device's: what was given, views of what was given, or new tensors."""
    devices = [value for value in flat if isinstance(value, torch.device)]
    makes_tensors = devices[0].type == DEVICE.type if devices else True
    given = {id(host): value for host, value in zip(hosts, flat, strict=True) if isinstance(host, torch.Tensor)}
    homes = {host.untyped_storage()._cdata: value for host, value in zip(hosts, flat, strict=True) if is_here(value)}
    if isinstance(result, (list, tuple)):
        kind = list if len(op._schema.returns) == 1 else tuple
        return kind(_convert(one, given, homes, makes_tensors=makes_tensors) for one in result)
    return _convert(result, given, homes, makes_tensors=makes_tensors)


def _convert(one: Any, given: dict[int, Any], homes: dict[int, Any], *, makes_tensors: bool) -> Any:
    if isinstance(one, (list, tuple)):  # several lists of tensors
        return [_convert(part, given, homes, makes_tensors=makes_tensors) for part in one]
    if not isinstance(one, torch.Tensor):
        return one
    if id(one) in given:
        return given[id(one)]
    home = homes.get(one.untyped_storage()._cdata)
    if home is not None:
        return make_view(home, one)
    return _adopt_result(one) if makes_tensors else one


def _adopt_result(host: torch.Tensor) -> torch.Tensor:
    tensor = MEMORY.adopt(host)
    stream = TIMELINE.current
    MEMORY.buffers[tensor.untyped_storage().data_ptr()].use.note(stream, TIMELINE.launched[stream], writes=True)
    return tensor


# -------------------------------------------------------------------------------------------------------------- copies


def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between the device and the host, or within the device."""
    raise_if_dead_for_long()
    stream, number = TIMELINE.launch()
    for tensor, writes in ((source, False), (target, True)):
        if is_here(tensor) and (buffer := MEMORY.find(tensor)) is not None:
            buffer.use.note(stream, number, writes=writes)
    with torch._C._AutoDispatchBelowAutograd(), torch.no_grad():
        if is_here(target) and is_here(source):
            MEMORY.view(target).copy_(MEMORY.view(source))
        elif is_here(target):
            _copy_to_device(target, source, non_blocking=non_blocking)
        else:
            _copy_to_host(target, source, non_blocking=non_blocking)
    return target


def _copy_to_device(target: torch.Tensor, source: torch.Tensor, *, non_blocking: bool) -> None:
    """Read the host's memory. Pinned memory is read any time until somebody waits; other memory is staged at once."""
    MEMORY.view(target).copy_(source)
    if MEMORY.has(source):
        return  # what a collective has brought: on a device it is there already
    if not non_blocking:
        TIMELINE.wait_for_stream("copy to device" if PINNED.has(source) else "copy to device from pageable memory")
    elif not PINNED.has(source):
        note_wait("staging of pageable memory", drains=False)  # a driver may, and need not, wait for the stream
    elif DEVICE.hostile:
        _expect_unchanged(source)


def _expect_unchanged(source: torch.Tensor) -> None:
    """Check, when a copy from pinned memory is done, that nobody has written to that memory meanwhile."""
    before, line = source.clone(), find_line()[0]

    def check() -> None:
        same = torch.equal(
            before.contiguous().view(-1).view(torch.uint8), source.contiguous().view(-1).view(torch.uint8)
        )
        if not same:
            raise UnorderedAccess(
                f"pinned memory was written to before its copy to the device, asked for at {line}, was done"
            )

    stream = TIMELINE.current
    TIMELINE.late.append(LateCopy(stream, TIMELINE.launched[stream], check))


def _copy_to_host(target: torch.Tensor, source: torch.Tensor, *, non_blocking: bool) -> None:
    """Write to the host's memory. CUDA waits if that is not pinned; other devices promise nothing."""
    numbers = MEMORY.view(source)
    if not non_blocking or (DEVICE.type == "cuda" and not PINNED.has(target)):
        TIMELINE.wait_for_stream("copy to host" if not non_blocking else "copy to host in pageable memory")
        target.copy_(numbers)
    elif DEVICE.hostile:
        numbers = numbers.clone()
        _spoil(target, numbers)
        stream = TIMELINE.current
        TIMELINE.late.append(LateCopy(stream, TIMELINE.launched[stream], lambda: _write(target, numbers)))
    else:
        target.copy_(numbers)


def _spoil(target: torch.Tensor, numbers: torch.Tensor) -> None:
    """Put other numbers where a late copy will put these: not a number, or every bit turned round."""
    if target.is_floating_point() or target.is_complex():
        target.fill_(float("nan"))
    else:
        target.copy_(~numbers)


def _write(target: torch.Tensor, numbers: torch.Tensor) -> None:
    with torch._C._AutoDispatchBelowAutograd(), torch.no_grad():
        target.copy_(numbers)


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy, with the arguments in the order in which PrivateUse1 gets them."""
    return copy_(target, source, non_blocking)


def to_copy(
    source: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Return a copy on or from the device; one that comes to the host without waiting is in pinned memory."""
    place = source.device if device is None else device
    shape = MEMORY.view(source) if is_here(source) else source
    kept = torch.preserve_format if memory_format is None else memory_format
    fresh = torch.empty_like(shape, dtype=dtype, memory_format=kept, device=None if place.type != "meta" else place)
    if place.type == "meta":
        return fresh
    if place.type == DEVICE.type:
        fresh = MEMORY.adopt(fresh)
    elif non_blocking or pin_memory:
        PINNED.add(fresh)
    return copy_(fresh, source, non_blocking)


def read_number(tensor: torch.Tensor) -> Any:
    """Return the one number of a tensor (`item`)."""
    raise_if_dead_for_long()
    _enqueue(torch.ops.aten._local_scalar_dense.default, [tensor], set())
    TIMELINE.wait_for_stream("item")
    return MEMORY.view(tensor).item()


# -------------------------------------------------------------------------------------------------------------- memory


def empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> torch.Tensor:
    kept = torch.contiguous_format if memory_format in (None, torch.preserve_format) else memory_format
    return MEMORY.adopt(torch.empty(size, dtype=dtype, memory_format=kept))


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return MEMORY.adopt(torch.empty_strided(size, stride, dtype=dtype))


def resize_(tensor: torch.Tensor, size: Any, *, memory_format: Any = None) -> torch.Tensor:
    shape = torch.empty(size, dtype=tensor.dtype, device="meta")
    if MEMORY.find(tensor) is not None and shape.untyped_storage().nbytes() <= tensor.untyped_storage().nbytes():
        return seat_tensor(tensor, tensor.untyped_storage(), shape)
    old, fresh = MEMORY.view(tensor).reshape(-1), torch.empty(size, dtype=tensor.dtype)
    fresh.view(-1)[: old.numel()].copy_(old[: fresh.numel()])
    return MEMORY.reseat(tensor, fresh)


def set_storage(
    tensor: torch.Tensor, source: Any, offset: int = 0, size: Any = None, stride: Any = ()
) -> torch.Tensor:
    size = [source.nbytes() // tensor.element_size()] if size is None else size
    stride = stride or torch.empty(size, device="meta").stride()
    like = torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")
    like = like.as_strided(size, stride, offset) if offset else like
    return seat_tensor(tensor, source.untyped() if isinstance(source, torch.TypedStorage) else source, like)


def set_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return seat_tensor(tensor, source.untyped_storage(), source)


def set_nothing(tensor: torch.Tensor) -> torch.Tensor:
    return MEMORY.reseat(tensor, torch.empty(0, dtype=tensor.dtype))


def record_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Keep memory until a stream is done with it, though no tensor refers to it."""
    if (buffer := MEMORY.find(tensor)) is not None:
        buffer.kept_for.add(stream.stream_id)


OWN = {
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "copy_": copy_,
    "_copy_from": copy_from,
    "_to_copy": to_copy,
    "_local_scalar_dense": read_number,
    "resize_": resize_,
    "set_": set_nothing,
    "set_.source_Storage": set_storage,
    "set_.source_Storage_storage_offset": set_storage,
    "set_.source_Tensor": set_tensor,
    "record_stream": record_stream,
}


def register_kernels() -> None:
    """Register the kernels for the device's dispatch key."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(run_kernel, DEVICE.key)
    aten, collectives = (torch.library.Library(one, "IMPL", DEVICE.key) for one in ("aten", "c10d"))
    LIBRARIES.extend([every, aten, collectives])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says of each that it replaces a kernel
        for name, kernel in OWN.items():
            if not (name == "copy_" and DEVICE.key == "PrivateUse1"):  # that one gets _copy_from
                aten.impl(name, kernel)
        for name in _find_whole_operations():
            aten.impl(name, _make_kernel(torch.ops.aten, name))
        for name in _find_collectives():
            collectives.impl(name, _make_kernel(torch.ops.c10d, name))


def _find_whole_operations() -> list[str]:
    """Return the operations that a composite kernel would take apart, though the host has a kernel that does them.

    That one computes what the host computes, bit for bit, and is one launch. Operations on lists of tensors are one
    launch on a device as well.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    apart = [name for name in names if any(has_kernel(name, composite) for composite in COMPOSITES)]
    whole = [name for name in apart if has_kernel(name, "CPU") or name.startswith("aten::_foreach_")]
    return [*CONVOLUTIONS, *(name.removeprefix("aten::") for name in whole)]


def _find_collectives() -> list[str]:
    """Return what processes do together: gloo does it with the host's tensors, and here it counts as a kernel."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return [name.removeprefix("c10d::") for name in names if has_kernel(name, DEVICE.key)]


def _make_kernel(operations: Any, name: str) -> Any:
    base, _, overload = name.partition(".")
    op = getattr(getattr(operations, base), overload or "default")
    return lambda *args, **kwargs: run_kernel(op, *args, **kwargs)
