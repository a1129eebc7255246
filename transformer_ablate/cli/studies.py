"""The command line of studies: one parser for all, its recipe options made from the dataclasses."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import sys
from argparse import ArgumentError, Namespace
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from transformer_ablate.config import GROUPS
from transformer_ablate.errors import ConfigError, tell_in_one_line, unknown_name
from transformer_ablate.paths import project_root
from transformer_ablate.plugins import load_plugin
from transformer_ablate.study.declarations import PRESETS, Study, Variant

tell_in_one_line()  # a study's file imports this module before it declares its study
OK, SOME_FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
ACCELERATORS = ("auto", "cpu", "gpu")
# How a person would call what a field holds.
KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "dict": "names with values, as in '{base: 100}' (with the space) or .base 100 behind the option",
}
FIELD_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "dict[str, Any]": dict[str, Any],
}


def build_parser(program: str) -> ArgumentParser:
    """All options of a study; recipe fields have no default here, so that only what the user set overrides a recipe."""
    parser = ArgumentParser(prog=program, exit_on_error=False, description="Trains the arms of a study and reports.")
    add = parser.add_argument
    add("--preset", default="quick", help=f"size and number of seeds: {', '.join(PRESETS)} (default: quick)")
    add("--seeds", type=int, help="number of seeds (default: the preset's)")
    add("--seed-list", help="seeds by value, e.g. 0,1,2")
    add("--variants", help="arms to run, e.g. rope,sinusoidal; all for every one (default: the preset's)")
    add("--cells", help="tasks to run, by the names that the plan prints; all for every one (default: the preset's)")
    add("--workers", type=int, help="training processes at a time (default: one a core; one with a GPU)")
    add("--launcher", default="local", help="where runs are computed: local")
    add("--tracking-uri", help="MLflow store (default: MLFLOW_TRACKING_URI, else mlflow.db in the project)")
    add("--output", help="folder of the reports (default: reports/ in the project)")
    add("--plugin", action="append", help="a Python file with components, tasks and VARIANTS of your own; repeatable")
    add("--config", action="config", help="a YAML file of options and recipe fields, e.g. a report's recommended.yaml")
    add("--lr-grid", help="factors of each arm's peak rate, e.g. 0.5,1,2: the best on validation data is taken")
    add("--dry-run", action="store_true", help="check everything, print the plan, train nothing")
    add("--fresh", action="store_true", help="train again what the store has already")
    add("--fail-fast", action="store_true", help="stop at the first run that fails")
    add("--report-only", action="store_true", help="train nothing, write the reports")
    add("--accelerator", default="auto", help=f"{', '.join(ACCELERATORS)} (default: auto)")
    add("--devices", type=int, default=1, help="devices of one run (default: 1)")
    add("--device-tflops", type=float, default=100.0, help="TFLOP/s that a device sustains, for the hours of a dry run")
    add("--precision", help="short for --train.precision")
    for group, config in GROUPS.items():
        for field in dataclasses.fields(config):
            default = "" if field.default is dataclasses.MISSING else f" [{field.default}]"
            add(f"--{group}.{field.name}", type=FIELD_TYPES[str(field.type)], help=field.metadata["help"] + default)
    return parser


def parse(argv: Sequence[str], program: str) -> tuple[Namespace, dict[str, Any]]:
    """The options and, apart, the recipe fields that the user set, dotted.

    Raises:
        ConfigError: for an unknown option or a value of the wrong type.
    """
    parser = build_parser(program)
    try:
        options = parser.parse_args(list(argv))
    except ArgumentError as error:
        raise _in_our_words(str(error), argv, parser) from None
    overrides = {
        f"{group}.{name}": value
        for group in GROUPS
        for name, value in vars(options.pop(group)).items()
        if value is not None
    }
    if options.precision is not None:
        overrides["train.precision"] = options.precision
    return options, overrides


def _in_our_words(message: str, argv: Sequence[str], parser: ArgumentParser) -> ConfigError:
    """jsonargparse's error as one line that names the option, the value and what is allowed."""
    known = [word for action in parser._actions for word in action.option_strings]
    unrecognised = re.search(r"unrecognized arguments: (\S+)", message)
    if unrecognised:
        word = unrecognised[1].partition("=")[0]
        near = unknown_name("option", word, known)
        return ConfigError("option", word, "what --help lists", near.fix)
    wrong_type = re.search(r'key "([^"]+)":.*?<class \'(\w+)\'>. Got value: (.*)', message, re.DOTALL)
    if wrong_type:
        kind = KINDS.get(wrong_type[2], f"a {wrong_type[2]}")
        return ConfigError(wrong_type[1], wrong_type[3], kind)
    return ConfigError("command line", " ".join(argv), " ".join(message.split()))


def check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    """Raises ConfigError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise unknown_name(option, value, allowed)


def check_at_least(option: str, value: int | None, least: int) -> None:
    """Raises ConfigError where a number is given and is below ``least``."""
    if value is not None and value < least:
        raise ConfigError(option, value, f"an integer at least {least}")


def chosen_seeds(options: Namespace, overrides: dict[str, Any]) -> list[int] | None:
    """The seeds that the user named, by ``--seed-list``, ``--train.seed`` or ``--seeds``; None for the preset's.

    Raises:
        ConfigError: for a list that holds anything but distinct non-negative integers.
    """
    check_at_least("--seeds", options.seeds, 1)
    single = overrides.pop("train.seed", None)
    given = {"--seeds": options.seeds, "--seed-list": options.seed_list, "--train.seed": single}
    several = [name for name, value in given.items() if value is not None]
    if len(several) > 1:
        raise ConfigError(several[1], given[several[1]], f"left out beside {several[0]}")
    if options.seed_list is not None:
        words = [word.strip() for word in options.seed_list.split(",")]
        if not all(word.isdecimal() for word in words) or len(set(words)) != len(words):
            raise ConfigError("--seed-list", options.seed_list, "distinct non-negative integers, e.g. 0,1,2")
        return [int(word) for word in words]
    if single is not None:
        check_at_least("train.seed", single, 0)
        return [single]
    return None if options.seeds is None else list(range(options.seeds))


def main(studies: Sequence[Study], argv: Sequence[str] | None = None, program: str = "experiments") -> NoReturn:
    """Runs studies as the command line says and exits with the contract's status."""
    sys.exit(run(studies, sys.argv[1:] if argv is None else argv, program))


def run(studies: Sequence[Study], argv: Sequence[str], program: str) -> int:
    """Like :func:`main`, but returns the status: 0 all well, 1 some run failed, 2 usage error, 130 interrupted."""
    # Explicitly, because a shell starts background jobs with Ctrl-C ignored and Python would leave it so.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return _run(studies, argv, program)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        return INTERRUPTED


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(studies: Sequence[Study], argv: Sequence[str], program: str) -> int:
    options, overrides = parse(argv, program)
    check_choice("--preset", options.preset, PRESETS)
    check_choice("--launcher", options.launcher, ("local",))
    check_choice("--accelerator", options.accelerator, ACCELERATORS)
    accelerator = _accelerator(options.accelerator)
    check_at_least("--workers", options.workers, 1)
    if not options.device_tflops > 0:
        raise ConfigError("--device-tflops", options.device_tflops, "a number above 0")
    if options.devices != 1:
        raise ConfigError("--devices", options.devices, "1: a run on several devices is not built yet")
    seeds = chosen_seeds(options, overrides)
    variants, cells = (
        None if given is None else [name.strip() for name in given.split(",") if name.strip()]
        for given in (options.variants, options.cells)
    )

    plugins = [load_plugin(file) for file in options.plugin or ()]

    # Only now what takes seconds to import: a typing mistake is answered at once.
    from transformer_ablate.run.estimate import operations, print_operations
    from transformer_ablate.run.rates import grid_plan, parse_grid
    from transformer_ablate.run.sweep import Options, Tally, choose_rates, describe_plan, estimate, run_sweep
    from transformer_ablate.study.plan import make_plan

    factors = parse_grid(options.lr_grid) if options.lr_grid is not None else ()
    studies = [with_plugins(study, plugins) for study in studies]
    plans = [make_plan(study, options.preset, seeds, variants, overrides, cells) for study in studies]
    how = Options(
        workers=options.workers or _default_workers(accelerator),
        tracking_uri=options.tracking_uri,
        output=Path(options.output).resolve() if options.output else project_root() / "reports",
        fresh=options.fresh,
        fail_fast=options.fail_fast,
        report_only=options.report_only,
        accelerator=accelerator,
        devices=options.devices,
    )
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
            print(estimate(grids, how), flush=True)
        print(estimate(plans, how), flush=True)
    if options.dry_run:
        return OK
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
