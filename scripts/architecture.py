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


HOLDS = {
    FOUNDATION: "config, registry, options, errors, tokens: what a run is, and its checks",
    "core": "the models: attention, positions behind three doors, decoding",
    "data": "tasks, corpora, tokenizers, batches",
    "training": "one LightningModule, losses, schedules",
    "measures": "a trained model on its data → numbers",
    "metrics": "what a reader is told about a number",
    "stats": "pure statistics of per-seed numbers",
    "study": "declarations: arms, cells, claims with their rules; the plan",
    "record": "one shape of a run's record; alone knows MLflow",
    "verdicts": "records + rules → verdicts, gates, a recommended recipe",
    "report": "sections of blocks, built once; two renderers",
    "run": "sweep, launchers, worker, rates, estimate, display",
    "cli": "the one door",
    "experiments": "one short declaration a study",
}
HIGH, WIDE, GAP, LEFT = 34, 560, 12, 20


def picture() -> str:
    """The rooms from the ground up the page down, and an arc from each to every room that it imports from."""
    place = {room: 20 + i * (HIGH + GAP) for i, room in enumerate(ROOMS)}
    height = 20 + len(ROOMS) * (HIGH + GAP)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE + 330} {height}" font-family="sans-serif">',
        "<title>Rooms and the imports between them: every arc goes from a room to one that stands above it</title>",
        f'<rect width="{WIDE + 330}" height="{height}" fill="#ffffff"/>',
    ]
    for (a, b), n in sorted(arrows().items()):
        start, end, x = place[a] + HIGH / 2, place[b] + HIGH / 2, LEFT + WIDE
        out = x + 12 + (start - end) * 0.45
        drawn.append(
            f'<path d="M {x} {start:g} C {out:g} {start:g} {out:g} {end:g} {x} {end:g}" fill="none" stroke="#0b62a8" '
            f'stroke-opacity=".45" stroke-width="{min(8.0, 0.8 + n**0.5):.1f}"><title>{a} → {b}: {n}</title></path>'
        )
    for room, y in place.items():
        drawn.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="#f5f7fa" stroke="#99a3b3"/>'
        )
        drawn.append(f'<text x="{LEFT + 12}" y="{y + 22}" font-weight="bold" font-size="15">{room}</text>')
        drawn.append(f'<text x="{LEFT + 120}" y="{y + 22}" font-size="13">{HOLDS[room]}</text>')
    return "\n".join([*drawn, "</svg>"]) + "\n"


PICTURE = ROOT / "docs" / "architecture.svg"

if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
