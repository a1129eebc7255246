"""``python -m transformer_ablate COMMAND`` and ``python -m experiments COMMAND``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from transformer_ablate.cli import OK, guarded
from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.plugins import load_plugin
from transformer_ablate.study.declarations import Study

# Packages that bring studies name, in this group of their metadata, a function that returns them by name.
STUDIES_GROUP = "transformer_ablate.studies"
COMMANDS = {
    "list": "the studies, each with its question (the default)",
    "run": "run all|NAME|FILE.py ... [options]: train what is missing and report; run --help lists the options",
    "report": "report all|NAME|FILE.py ... [options]: write the reports of what was run, train nothing",
    "components": "every component with what it does, its source, its options and its cost",
    "data": "data --source FILE: what to know of a corpus before training on it",
}
Discover = Callable[[], Mapping[str, Study]]


def installed_studies() -> dict[str, Study]:
    """The studies of all installed packages, by name."""
    found = [entry.load()() for entry in entry_points(group=STUDIES_GROUP)]
    return {name: study for studies in found for name, study in studies.items()}


def enter(argv: Sequence[str], program: str, discover: Discover = installed_studies) -> int:
    """Carries out one command; returns the exit status."""
    return guarded(lambda: _enter(list(argv) or ["list"], program, discover))


def _enter(argv: list[str], program: str, discover: Discover) -> int:
    command, words = argv[0], argv[1:]
    if command in ("list", "-h", "--help"):
        print(f"usage: python -m {program} COMMAND\n")
        print(*(f"  {name:12s}{what}" for name, what in COMMANDS.items()), sep="\n", end="\n\n")
        print(*(f"{study.name:24s}{study.question}" for study in discover().values()), sep="\n")
        return OK
    if command in ("run", "report"):
        from transformer_ablate.cli.studies import run_studies

        asked = {"-h", "--help"} & set(words)
        studies, options = ([], ["--help"]) if asked else chosen(words, discover)
        only = ["--report-only"] if command == "report" and not asked else []
        return run_studies(studies, [*options, *only], f"python -m {program} {command}")
    if command == "components":
        from transformer_ablate.cli.components import main as catalogue

        return catalogue()
    if command == "data":
        from transformer_ablate.cli.corpus import main as corpus

        return corpus(words, f"{program} data")
    raise unknown_name("command", command, COMMANDS)


def chosen(words: Sequence[str], discover: Discover) -> tuple[list[Study], list[str]]:
    """The studies named before the first option, by name or by a file that holds a ``STUDY``, and the options.

    Raises:
        ConfigError: for an unknown study, or none.
    """
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = list(dict.fromkeys(words[:first_option])), list(words[first_option:])
    files = {name: _of_file(name) for name in names if name.endswith(".py")}
    known = discover() if len(files) < len(names) or not names else {}
    if not names:
        raise ConfigError("study", "", f"all, {', '.join(known)}, or a file that holds a STUDY")
    if names == ["all"]:
        return list(known.values()), options
    for name in names:
        if name not in known and name not in files:
            raise unknown_name("study", name, ["all", *known])
    return [files[name] if name in files else known[name] for name in names], options


def _of_file(name: str) -> Study:
    study = getattr(load_plugin(name), "STUDY", None)  # as a plugin: what it registers, worker processes know too
    if not isinstance(study, Study):
        raise ConfigError("study", name, "a Python file that holds a Study called STUDY")
    return study
