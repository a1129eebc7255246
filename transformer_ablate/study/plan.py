"""From a study, a preset and the user's choices to the list of runs, checked before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_ablate.config import DataConfig, Recipe, check_values
from transformer_ablate.core import build_model, check_tying, longest_output
from transformer_ablate.data import TokenBudgetBatches, load_task
from transformer_ablate.data.synthetic import length_buckets
from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.measures.names import EXCLUSIVE
from transformer_ablate.study.checks import check_test_sets, exact_checks
from transformer_ablate.study.declarations import SEEDS, USUAL_MEASURES, Cell, Study, Variant, resolved, within
from transformer_ablate.study.recipes import base_recipe
from transformer_ablate.study.trial import parts, try_out

# What says which texts are learnt: where the user names them, the declared title is not theirs.
CORPUS_FIELDS = ("data.split", "data.source", "data.config", "data.source_column", "data.target_column", "data.swap")
# A cell is its task and its split: naming one on the command line selects cells instead of renaming what they measure.
CELL_FIELDS = ("data.task", "data.split")


@dataclass(frozen=True)
class PlannedRun:
    """One training run: its place in a study and all that determines its result.

    Attributes:
        study, preset, variant, cell, seed: its place.
        base: name of the base recipe.
        delta: dotted fields in which its recipe differs from the base.
        recipe: fully resolved, seed included.
        data_hash: content hash of the task's data.
        fingerprint: identity; equal fingerprints run once.
        measures: names of what is measured; the identity is that of the trained model and does not depend on it.
    """

    study: str
    preset: str
    variant: str
    cell: str
    seed: int
    base: str
    delta: Mapping[str, Any]
    recipe: Recipe
    data_hash: str
    fingerprint: str
    measures: tuple[str, ...] = USUAL_MEASURES

    @property
    def exclusive(self) -> bool:
        """Whether it must have the machine to itself."""
        return not EXCLUSIVE.isdisjoint(self.measures)

    @property
    def name(self) -> str:
        """How people call it."""
        return f"{self.cell}/{self.variant}/seed{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The runs of one study.

    Attributes:
        study: the declaration.
        preset: name.
        runs: seed by seed, so that an interrupted sweep has every arm at its first seeds.
        skipped: ``(name, reason)`` of what this preset or selection leaves out.
        bases: base recipe of each cell, user's overrides included, as flat fields.
    """

    study: Study
    preset: str
    runs: tuple[PlannedRun, ...]
    skipped: tuple[tuple[str, str], ...]
    bases: Mapping[str, Mapping[str, Any]]


def make_plan(
    study: Study,
    preset: str,
    seeds: Sequence[int] | None = None,
    variants: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    cells: Sequence[str] | None = None,
) -> Plan:
    """Resolves and checks every recipe of a study.

    Args:
        study: the declaration.
        preset: one of the presets.
        seeds: None for 0, 1, … as many as the preset has.
        variants: names of arms to run; ``all`` for every one; None for those of the preset.
        overrides: dotted fields set by the user; they win over the bases and never over an arm's own delta.
        cells: names of cells to run; ``all`` for every one; None for those of the preset, or those that
            ``data.task`` and ``data.split`` select.

    Raises:
        ConfigError: for anything that could not be trained.
    """
    overrides = dict(overrides or {})
    check_values(overrides)  # a mistake in the user's own words is told before any that follows from it
    seeds = tuple(seeds) if seeds is not None else tuple(range(SEEDS[preset]))
    arms, skipped_arms = _choose_variants(study, preset, variants)
    for arm in arms:
        for name in set(arm.delta) & set(overrides):
            allowed = f"left unset: arm {arm.name!r} is defined by it"
            raise ConfigError(name, overrides[name], allowed, "choose arms with --variants")
    chosen, skipped_cells = _choose_cells(study, preset, overrides, cells)

    bases: dict[str, Mapping[str, Any]] = {}
    arm_recipes: list[tuple[Variant, Cell, Recipe, dict[str, Any]]] = []
    for cell in chosen:
        base = base_recipe(cell.base, preset, overrides, cell.fields(preset))
        bases[cell.name] = base.flat()
        for arm in arms:
            if cell in study.cells_of(arm):
                delta = resolved(arm.delta, base)
                arm_recipes.append((arm, cell, base.replace(delta), delta))
    if not arm_recipes:
        names = ", ".join(arm.name for arm in arms)
        raise ConfigError(
            "--variants", names, "arms that run in the selected cells: " + ", ".join(c.name for c in chosen)
        )
    tried: set[Any] = set()
    hashes = {recipe.data: _check(recipe, arm.name, tried) for arm, _, recipe, _ in arm_recipes}
    if not any(name.startswith("data.") for name in overrides):  # other data may have other test sets
        _check_names(study, [(cell.name, recipe) for _, cell, recipe, _ in arm_recipes])
    if not overrides.keys().isdisjoint(CORPUS_FIELDS):
        study = _titled_by_data(study, {cell.name: recipe for _, cell, recipe, _ in arm_recipes})
    runs = []
    for seed in seeds:
        for arm, cell, recipe, delta in arm_recipes:
            seeded = recipe.replace({"train.seed": seed})
            data_hash = hashes[recipe.data]
            runs.append(
                PlannedRun(
                    study.name,
                    preset,
                    arm.name,
                    cell.name,
                    seed,
                    cell.base,
                    delta,
                    seeded,
                    data_hash,
                    seeded.fingerprint(data_hash),
                    cell.measures,
                )
            )
    return Plan(study, preset, tuple(runs), (*skipped_cells, *skipped_arms, *study.left_out), bases)


def _check_names(study: Study, recipes: Sequence[tuple[str, Recipe]]) -> None:
    """Holds the test sets and exact checks that a study names against those that there are."""
    from transformer_ablate.measures.exact import CHECKS

    for where, name in exact_checks(study):
        if name not in CHECKS:
            raise unknown_name(where, name, CHECKS)
    known: dict[str, dict[str, None]] = {}
    for cell, data in dict.fromkeys((cell, recipe.data) for cell, recipe in recipes):
        task = load_task(data)
        names = known.setdefault(cell, {})
        names |= dict.fromkeys(test.name for test in task.test)
        if task.scorer is not None:  # a corpus has test sets of longer texts where it holds enough of them
            names |= dict.fromkeys(name for name, *_ in length_buckets(data.max_length))
    for cell, names in known.items():
        check_test_sets(study, cell, list(names))


def _titled_by_data(study: Study, recipes: Mapping[str, Recipe]) -> Study:
    """The study with the titles of the user's own corpus in the place of those that speak of another."""
    titles = {name: load_task(recipe.data).title for name, recipe in recipes.items()}
    cells = (dataclasses.replace(cell, title=titles.get(cell.name) or cell.title) for cell in study.cells)
    return dataclasses.replace(study, cells=tuple(cells))


def _choose_cells(
    study: Study, preset: str, overrides: dict[str, Any], names: Sequence[str] | None
) -> tuple[list[Cell], list[tuple[str, str]]]:
    """The cells to run, and why the others are not. Removes from ``overrides`` what has served to select."""
    every = names is not None and list(names) == ["all"]
    for name in () if names is None or every else names:
        if name not in [cell.name for cell in study.cells]:
            raise unknown_name("--cells", name, [*(cell.name for cell in study.cells), "all"])
    selection = {name: overrides.pop(name) for name in CELL_FIELDS if name in overrides}
    chosen, skipped = [], []
    recipes = {cell.name: base_recipe(cell.base, preset, cell=cell.fields(preset)).flat() for cell in study.cells}
    divided = [cell.name for cell in study.cells if recipes[cell.name]["data.split"] != DataConfig.split]
    split = selection.pop("data.split", None)
    if split is not None:
        # It means something to cells that say how they are divided, and to no others: one that is divided so is
        # selected by it; where none is, all of them are divided so.
        same = [name for name in divided if recipes[name]["data.split"] == split]
        if not same:
            overrides["data.split"] = split
        for name, fields in recipes.items():
            fields["data.split"] = split if name in (same or divided) else "none: it is not divided"
        selection["data.split"] = split
    for cell in study.cells:
        if any(recipes[cell.name][name] != value for name, value in selection.items()):
            skipped.append((cell.name, "another task or split was selected"))
        elif names is not None and not every and cell.name not in names:
            skipped.append((cell.name, "not among --cells"))
        elif names is None and not selection and not within(cell.level, preset):
            skipped.append((cell.name, f"not in preset {preset}; --cells all, or its name, runs it"))
        else:
            chosen.append(cell)
    left = list(study.cells)
    for name, value in selection.items():
        allowed = ", ".join(dict.fromkeys(str(recipes[cell.name][name]) for cell in left))
        left = [cell for cell in left if recipes[cell.name][name] == value]
        if not left:
            raise ConfigError(name, value, f"in study {study.name} with these options: {allowed}")
    return chosen, skipped


def _choose_variants(
    study: Study, preset: str, names: Sequence[str] | None
) -> tuple[list[Variant], list[tuple[str, str]]]:
    known = [variant.name for variant in study.variants]
    if names is not None and list(names) != ["all"]:
        for name in names:
            if name not in known:
                raise unknown_name("--variants", name, [*known, "all"])
    chosen, skipped = [], []
    for variant in study.variants:
        if names is not None:
            wanted, reason = list(names) == ["all"] or variant.name in names, "not among --variants"
        else:
            wanted = within(variant.level, preset)
            reason = f"not in preset {preset}; --variants all, or its name, runs it"
        if wanted:
            chosen.append(variant)
        else:
            skipped.append((variant.name, reason))
    return chosen, skipped


def _check(recipe: Recipe, arm: str, tried: set[Any]) -> str:
    """Loads the data, builds the model and tries what has not been ``tried``, so that every fault shows now.

    Returns:
        the data's hash.
    """
    import torch

    from transformer_ablate.training.adaptation import check_adaptation
    from transformer_ablate.training.sequential import check_sampling

    check_sampling(recipe.train)
    task = load_task(recipe.data)
    sizes = len(task.source_vocabulary), len(task.target_vocabulary)
    check_tying(recipe.model.tying, *sizes, task.joint_vocabulary)
    # One example over the token budget would end the run in its first epoch.
    TokenBudgetBatches(task.train, recipe.data.batch_tokens, recipe.data.length_buckets, seed=0, steps=1)
    with torch.device("meta"):
        model = build_model(recipe.model, *sizes)
    check_adaptation(model, recipe.train)
    sets = (task.train, task.valid, *(test.pairs for test in task.test))
    source = max(int(pairs.source.lengths.max()) for pairs in sets)
    target = max(int(pairs.target.lengths.max()) for pairs in sets)
    model.check_lengths(source, max(target, longest_output(source)))
    if (new := (parts(recipe.model), recipe.train.regime, recipe.train.precision)) not in tried:
        tried.add(new)
        try_out(arm, recipe, task, sum(parameter.numel() for parameter in model.parameters()))
    return task.content_hash
