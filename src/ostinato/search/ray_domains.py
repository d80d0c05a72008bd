"""Ray Tune's form of a parameter: `tune.uniform(...)` and the like, to ours and back. Ray is optional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .parameter import Parameter, SpaceError

_MODULE = "ray.tune.search.sample"


def is_domain(given: Any) -> bool:
    """Return whether something is a range or list of Ray Tune's, without loading Ray."""
    return any(kind.__module__ == _MODULE and kind.__name__ == "Domain" for kind in type(given).__mro__) or (
        isinstance(given, dict) and set(given) == {"grid_search"}
    )


def read_domain(name: str, domain: Any, *, takes_rays: bool = False) -> Parameter:
    """Return a range or list of Ray's as a parameter.

    Raises:
        SpaceError: It has no counterpart, such as a normal distribution or a function.
    """
    if isinstance(domain, dict):
        return Parameter.choose(name, domain["grid_search"])
    kind = type(domain).__name__
    if takes_rays and kind == "Function":
        return Parameter(name, "other", choices=(kind,))
    sampler = domain.get_sampler()
    step = getattr(sampler, "q", None)
    inner = sampler.get_sampler() if step is not None else sampler
    spread = type(inner).__name__
    if kind == "Categorical" and "Uniform" in spread:
        return Parameter.choose(name, list(domain.categories))
    if kind not in ("Float", "Integer") or "Uniform" not in spread:
        if takes_rays:
            return Parameter(name, "other", choices=(f"{kind} {spread.strip('_')}",))
        raise SpaceError(
            what=f"the space of {name!r} is {domain}, which is Ray's alone",
            why="only uniform and logarithmic ranges and lists exist in every library",
            fix="use tune.uniform, tune.loguniform, tune.randint or tune.choice; or backend='ray'",
        )
    whole, log = kind == "Integer", spread == "_LogUniform"
    high = domain.upper - 1 if whole and step is None else domain.upper  # Ray leaves the end of whole numbers out
    return Parameter.range(name, domain.lower, high, step=None if log else step, log=log, whole=whole)


def build_domains(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return parameters as Ray's ranges and lists."""
    from ray import tune  # noqa: PLC0415 - optional

    domains: dict[str, Any] = {}
    for one in parameters:
        low: Any = one.low
        high: Any = one.high
        step: Any = one.step
        if one.kind == "choice":
            domains[one.name] = tune.choice(list(one.choices))
        elif one.kind == "int" and one.log:
            domains[one.name] = tune.lograndint(low, high + 1)
        elif one.kind == "int":
            domains[one.name] = (
                tune.qrandint(low, high, step) if step not in (None, 1) else tune.randint(low, high + 1)
            )
        elif one.log:
            domains[one.name] = tune.loguniform(low, high)
        else:
            domains[one.name] = tune.quniform(low, high, step) if step else tune.uniform(low, high)
    return domains
