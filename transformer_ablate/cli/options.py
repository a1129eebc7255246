"""The options of a study: one parser for all, its recipe fields made from the dataclasses."""

from __future__ import annotations

import dataclasses
import re
from argparse import ArgumentError, Namespace
from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser

from transformer_ablate.config import GROUPS
from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.study.declarations import PRESETS

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
    add("--device-tflops", type=float, default=100.0, help="TFLOP/s that a device sustains, for the hours of a dry run")
    add("--precision", help="short for --train.precision")
    for group, config in GROUPS.items():
        for field in dataclasses.fields(config):
            add_field(parser, f"--{group}.{field.name}", field, field.default)
    return parser


def add_field(parser: ArgumentParser, flag: str, field: dataclasses.Field[Any], default: Any) -> None:
    """An option for a recipe field, with its help text; unset it is None, whatever ``default`` the help names."""
    told = "" if default is dataclasses.MISSING else f" [{default}]"
    parser.add_argument(flag, type=FIELD_TYPES[str(field.type)], help=field.metadata["help"].replace("%", "%%") + told)


def parse(argv: Sequence[str], program: str) -> tuple[Namespace, dict[str, Any]]:
    """The options and, apart, the recipe fields that the user set, dotted.

    Raises:
        ConfigError: for an unknown option or a value of the wrong type.
    """
    options = parse_words(build_parser(program), argv)
    overrides = {
        f"{group}.{name}": value
        for group in GROUPS
        for name, value in vars(options.pop(group)).items()
        if value is not None
    }
    if options.precision is not None:
        overrides["train.precision"] = options.precision
    return options, overrides


def parse_words(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """What the words set.

    Raises:
        ConfigError: for an unknown option or a value of the wrong type.
    """
    try:
        return parser.parse_args(list(argv))
    except ArgumentError as error:
        raise _in_our_words(str(error), argv, parser) from None


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
