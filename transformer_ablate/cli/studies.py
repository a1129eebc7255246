"""Runs studies as their command line says."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from transformer_ablate.cli import OK, SOME_FAILED
from transformer_ablate.cli.options import ACCELERATORS, check_at_least, check_choice, chosen_seeds, parse
from transformer_ablate.errors import ConfigError
from transformer_ablate.paths import project_root
from transformer_ablate.plugins import load_plugin
from transformer_ablate.study.declarations import PRESETS, Study, Variant


def run_studies(studies: Sequence[Study], argv: Sequence[str], program: str) -> int:
    """Plans, trains what is missing and reports; the status: 0 all well, 1 some run failed.

    Raises:
        ConfigError, KeyboardInterrupt: before anything is trained; after all processes have ended.
    """
    options, overrides = parse(argv, program)
    check_choice("--preset", options.preset, PRESETS)
    check_choice("--accelerator", options.accelerator, ACCELERATORS)
    accelerator = _accelerator(options.accelerator)
    check_at_least("--workers", options.workers, 1)
    if not options.device_tflops > 0:
        raise ConfigError("--device-tflops", options.device_tflops, "a number above 0")
    seeds = chosen_seeds(options, overrides)
    variants, cells = (
        None if given is None else [name.strip() for name in given.split(",") if name.strip()]
        for given in (options.variants, options.cells)
    )

    plugins = [load_plugin(file) for file in options.plugin or ()]

    # Only now what takes seconds to import: a typing mistake is answered at once.
    from transformer_ablate.run.estimate import operations, print_operations
    from transformer_ablate.run.outlook import describe_plan, estimate
    from transformer_ablate.run.rates import grid_plan, parse_grid
    from transformer_ablate.study.plan import make_plan

    factors = parse_grid(options.lr_grid) if options.lr_grid is not None else ()
    studies = [with_plugins(study, plugins) for study in studies]
    plans = [make_plan(study, options.preset, seeds, variants, overrides, cells) for study in studies]
    workers = options.workers or _default_workers(accelerator)
    known = options.tracking_uri, workers, options.fresh, options.report_only
    for plan in plans:
        print(describe_plan(plan), flush=True)
    if options.preset == "full" and accelerator != "gpu":
        for plan in plans:
            print(print_operations(operations(plan), options.device_tflops), flush=True)
        if not options.dry_run:
            raise ConfigError("--preset", "full", "--dry-run on this machine: it has no CUDA device to train on")
    else:
        if factors:
            grids = [grid_plan(plan, factors) for plan in plans]
            runs = sum(len(grid.runs) for grid in grids)
            print(f"learning rates: {runs} runs at the first seed, {len(factors)} rates an arm, come first", flush=True)
            print(estimate(grids, *known), flush=True)
        print(estimate(plans, *known), flush=True)
    if options.dry_run:
        return OK

    from transformer_ablate.run.sweep import Options, Tally, choose_rates, run_sweep

    how = Options(
        workers=workers,
        tracking_uri=options.tracking_uri,
        output=Path(options.output).resolve() if options.output else project_root() / "reports",
        fresh=options.fresh,
        fail_fast=options.fail_fast,
        report_only=options.report_only,
        accelerator=accelerator,
    )
    tally = Tally(0, 0, 0)
    if factors:
        plans, tally = choose_rates(plans, factors, how)
    tally += run_sweep(plans, how)
    print(tally, flush=True)
    return SOME_FAILED if tally.failed else OK


def with_plugins(study: Study, plugins: Sequence[ModuleType]) -> Study:
    """The study with the plugins' arms behind its own.

    Raises:
        ConfigError: for ``VARIANTS`` that are none, or that take the name of another arm.
    """
    variants = list(study.variants)
    for plugin in plugins:
        for variant in getattr(plugin, "VARIANTS", ()):
            if not isinstance(variant, Variant):
                raise ConfigError("--plugin", str(plugin.__file__), "VARIANTS that are Variant objects", repr(variant))
            if variant.name in {other.name for other in variants}:
                raise ConfigError("--plugin", variant.name, f"a name that no arm of {study.name} has already")
            variants.append(variant)
    return dataclasses.replace(study, variants=tuple(variants))


def _accelerator(name: str) -> str:
    """``gpu`` or ``cpu``: CUDA where there is some, and no other kind, since angles need float64."""
    import torch

    available = torch.cuda.is_available()
    if name == "gpu" and not available:
        raise ConfigError("--accelerator", name, "auto, cpu (this machine has no CUDA device)")
    return "gpu" if available and name != "cpu" else "cpu"


def _default_workers(accelerator: str) -> int:
    if accelerator == "gpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
