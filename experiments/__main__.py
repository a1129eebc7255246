"""``python -m experiments`` lists the studies; ``python -m experiments run all|NAME... [options]`` runs several."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import experiments
from transformer_ablate.cli.studies import USAGE, run
from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.study.declarations import Study


def discover() -> dict[str, Study]:
    """Every study under ``experiments/``, by name."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(experiments.__path__) if not module.name.startswith("_")
    )
    studies = [importlib.import_module(f"experiments.{name}").STUDY for name in names]
    return {study.name: study for study in studies}


def chosen(words: Sequence[str], studies: dict[str, Study]) -> tuple[list[Study], list[str]]:
    """The studies named before the first option, and the options.

    Raises:
        ConfigError: for an unknown study, or none.
    """
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = list(words[:first_option]), list(words[first_option:])
    if names == ["all"]:
        return list(studies.values()), options
    for name in names:
        if name not in studies:
            raise unknown_name("study", name, ["all", *studies])
    if not names:
        raise ConfigError("study", "", "all, " + ", ".join(studies))
    return [studies[name] for name in dict.fromkeys(names)], options


def main(argv: Sequence[str]) -> int:
    """Lists or runs; returns the exit status."""
    studies = discover()
    if not argv or argv[0] in ("-h", "--help"):
        print(
            "usage: python -m experiments run all|NAME... [options]    (options: python -m experiments.NAME --help)\n"
        )
        for study in studies.values():
            print(f"{study.name:24s}{study.question}")
        return 0
    try:
        if argv[0] != "run":
            raise unknown_name("command", argv[0], ["run"])
        if argv[1:] and argv[1] in ("-h", "--help"):
            return run([], ["--help"], "experiments run")
        selected, options = chosen(argv[1:], studies)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    return run(selected, options, "experiments run")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
