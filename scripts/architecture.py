"""Draws docs/architecture.svg from the imports, so that the picture cannot lie: ``python -m scripts.architecture``."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOUNDATION = "foundation"  # the modules beside the rooms: config, registry, options, errors, tokens, paths, …
# A room imports from those that stand before it.
ROOMS = (
    FOUNDATION, "core", "data", "training", "measures", "metrics", "stats", "study", "record", "verdicts", "report",
    "run", "cli", "experiments",
)  # fmt: skip
HOME = "transformer_ablate"


def modules() -> dict[str, Path]:
    """Dotted name to file of every module of the library and of the studies."""
    files = [file for top in (HOME, "experiments") for file in sorted((ROOT / top).rglob("*.py"))]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def room_of(module: str) -> str:
    """The room that a module stands in."""
    top, *rest = module.split(".")
    if top == "experiments":
        return top
    if module == f"{HOME}.__main__":
        return "cli"
    return rest[0] if rest and rest[0] in ROOMS else FOUNDATION


def imports(running: bool = False) -> dict[str, set[str]]:
    """Module to the modules of the project that it imports.

    Args:
        running: only what is imported when the module is: neither for types alone nor inside functions.
    """
    known = modules()
    found: dict[str, set[str]] = {}
    for name, file in known.items():
        own = found.setdefault(name, set())
        tree = ast.parse(file.read_text("utf-8"))
        for node in tree.body if running else ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys()
                every = len(whole) == len(node.names)  # modules alone were named: the package itself is not used
                own |= whole | (set() if every else {node.module} & known.keys())
            elif isinstance(node, ast.Import):
                own |= {alias.name for alias in node.names} & known.keys()
        own.discard(name)
    return found


def arrows() -> Counter[tuple[str, str]]:
    """(importing room, imported room) to the number of imports, between different rooms."""
    pairs = ((room_of(a), room_of(b)) for a, others in imports().items() for b in others)
    return Counter((a, b) for a, b in pairs if a != b)
