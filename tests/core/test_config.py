"""Recipes: limits, names, copies and fingerprints."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate import registry
from transformer_ablate.config import GROUPS, Recipe, check_values
from transformer_ablate.core.positions import Rotary
from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.registry import Registry
from transformer_ablate.study.recipes import BASES, base_recipe

FIELDS = {f"{g}.{f.name}": f for g, config in GROUPS.items() for f in dataclasses.fields(config)}
NUMBERS = {
    name: field for name, field in FIELDS.items() if any(field.metadata[k] is not None for k in ("at_least", "above"))
}
NAMES = {name: field for name, field in FIELDS.items() if field.metadata["choices"] is not None}


def choices(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    given = field.metadata["choices"]
    return given if isinstance(given, tuple) else given.names()


def test_every_field_has_help_and_a_limit() -> None:
    assert all(field.metadata["help"] for field in FIELDS.values())
    others = {field.type for name, field in FIELDS.items() if name not in {*NUMBERS, *NAMES}}
    assert others == {"bool", "dict[str, Any]", "str"}
    assert {field.type for field in NUMBERS.values()} == {"int", "float"}


# Limits ----------------------------------------------------------------------------------------------------------


def inside(field: dataclasses.Field[Any], value: float) -> bool:
    limit = field.metadata
    return (
        (limit["at_least"] is None or value >= limit["at_least"])
        and (limit["above"] is None or value > limit["above"])
        and (limit["below"] is None or value < limit["below"])
    )


@given(st.sampled_from(sorted(NUMBERS)), st.data())
def test_numbers_are_held_against_their_limits(name: str, data: st.DataObject) -> None:
    field = NUMBERS[name]
    edges = [field.metadata[k] for k in ("at_least", "above", "below") if field.metadata[k] is not None]
    near = st.sampled_from([edge + step for edge in edges for step in (-1, 0, 1)])
    if field.type == "int":
        value: float = data.draw(near | st.integers(-10, 10**9))
    else:
        value = data.draw(near | st.floats(-2, 10) | st.sampled_from([1e-9, -1e-9, 1 - 1e-12, 1 + 1e-12]))
    if inside(field, value):
        check_values({name: value})
    else:
        with pytest.raises(ConfigError) as caught:
            check_values({name: value})
        assert caught.value.field == name
        assert caught.value.value == value
        assert all(f"{edge:g}" in caught.value.allowed for edge in edges)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("value", [math.nan, True, "3", None, [1], -math.inf])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        check_values({name: value})


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.type == "bool"])
def test_switches_are_true_or_false(name: str) -> None:
    for value in (1, 0, "true", None):
        with pytest.raises(ConfigError, match="allowed: true or false"):
            check_values({name: value})


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.type == "dict[str, Any]"])
def test_options_are_names_with_values(name: str) -> None:
    for value in (1, "base", None, ["base"]):
        with pytest.raises(ConfigError, match="allowed: names with values"):
            check_values({name: value})


def test_heads_fill_the_width_where_nothing_projects_them() -> None:
    wide = {"model.d_model": 16, "model.n_heads": 2, "model.d_head": 16}
    assert Recipe().replace(wide).model.head_width == 16
    with pytest.raises(ConfigError, match=r"model\.d_head: got 16, allowed: d_model / n_heads = 8"):
        Recipe().replace({**wide, "model.output_projection": False})


def test_the_feed_forward_width_may_be_given_as_a_factor() -> None:
    assert Recipe().replace({"model.d_ff": 200}).model.ff_width == 200
    assert Recipe().replace({"model.d_ff": 200, "model.ff_factor": 2.5}).model.ff_width == 160


@pytest.mark.parametrize("name", [name for name, field in NUMBERS.items() if field.type == "int"])
def test_counts_are_whole(name: str) -> None:
    for value in (7.5, 64.0, math.inf):
        with pytest.raises(ConfigError, match="an integer"):
            check_values({name: value})


def test_recipes_cannot_be_made_invalid() -> None:
    for group, config in GROUPS.items():
        for name in (n for n in NUMBERS if n.startswith(f"{group}.")):
            with pytest.raises(ConfigError):
                Recipe(**{group: config(**{name.partition(".")[2]: -1})})
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().model.d_model = 3  # type: ignore[misc]


@given(st.integers(1, 96), st.integers(1, 96))
def test_heads_divide_the_width(d_model: int, n_heads: int) -> None:
    delta = {"model.d_model": d_model, "model.n_heads": n_heads}
    if d_model % n_heads == 0:
        assert Recipe().replace(delta).model.head_width * n_heads == d_model
    else:
        with pytest.raises(ConfigError) as caught:
            Recipe().replace(delta)
        assert caught.value.field == "model.n_heads"
        suggested = caught.value.allowed.partition(": ")[2].split(", ")
        assert [int(n) for n in suggested] == [n for n in range(1, d_model + 1) if d_model / n == d_model // n]


# Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_listed_name_is_accepted_and_others_are_not(name: str) -> None:
    known = choices(NAMES[name])
    assert known
    check_values(dict.fromkeys([name], known[-1]))
    for value in ("no such thing", "", 3, None, True, [known[0]]):
        with pytest.raises(ConfigError) as caught:
            check_values({name: value})
        assert caught.value.field == name
        assert all(k in caught.value.allowed for k in known)
    with pytest.raises(ConfigError, match=f"did you mean {known[0]!r}"):
        check_values({name: known[0] + "x"})


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ({"model.positon": "rope"}, r"model field: got 'positon'.*did you mean 'position'\?"),
        ({"modle.position": "rope"}, r"recipe group: got 'modle'.*did you mean 'model'\?"),
        ({"d_model": 3}, "recipe group: got 'd_model', allowed: model, data, train"),
        ({"model": {}}, "model field: got ''"),
        ({"model.position": "ropee"}, r"model\.position: got 'ropee'.*did you mean 'rope'\?"),
        ({"train.schedule": "zigzag"}, f"allowed: {', '.join(registry.SCHEDULES.names())}$"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(delta: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recipe().replace(delta)


def test_error_messages_are_one_line_and_survive_pickling() -> None:
    error = ConfigError("data.task", "a\nb", "copy,\n  reverse", "try\tcopy")
    assert str(error) == r"data.task: got 'a\nb', allowed: copy, reverse; try copy"
    for e in (error, unknown_name("model.ffn", "rel", ["relu"]), ConfigError("a", object, "b")):
        copy = pickle.loads(pickle.dumps(e))
        assert type(copy) is ConfigError
        assert isinstance(copy, ValueError)
        assert str(copy) == str(e)
        assert (copy.field, copy.value, copy.allowed, copy.fix) == (e.field, e.value, e.allowed, e.fix)


def test_registry_refuses_a_second_component_of_a_name() -> None:
    table: Registry[object] = Registry("model.thing", "transformer_ablate.core")
    first, second = object(), object()
    assert table.register("a")(first) is first
    table.register("a")(first)  # a module that is imported twice does no harm
    with pytest.raises(ValueError, match="'a' is registered already"):
        table.register("a")(second)
    table.register("b")(second)
    assert table.names() == ("a", "b")
    assert table["b"] is second
    assert table.version("a") == 1
    with pytest.raises(ConfigError, match=r"model\.thing: got 'c', allowed: a, b"):
        table["c"]


# Copies ----------------------------------------------------------------------------------------------------------

CHANGED: dict[str, Any] = {"model.d_model": 96, "model.n_heads": 2, "model.d_head": 48}


def another(name: str) -> Any:
    """A valid value of the field that is not its default."""
    default = Recipe().flat()[name]
    if name in CHANGED:
        return CHANGED[name]
    if name in NAMES:
        return next((c for c in choices(NAMES[name]) if c != default), None)
    if FIELDS[name].type == "bool":
        return not default
    if FIELDS[name].type in ("dict[str, Any]", "str"):
        return {"base": 100} if FIELDS[name].type == "dict[str, Any]" else "another"
    return default + 1 if FIELDS[name].type == "int" else (default / 2 or 0.25)


def test_replace_changes_what_is_named_and_nothing_else() -> None:
    base = Recipe()
    for name in FIELDS:
        value = another(name)
        if value is None:
            continue
        changed = base.replace({name: value})
        assert {n for n, v in changed.flat().items() if v != base.flat()[n]} == {name}
        assert changed.flat()[name] == value
    assert base == Recipe()
    assert list(base.flat()) == list(FIELDS)


def test_recipes_go_through_json_and_back() -> None:
    names = {name: another(name) for name in FIELDS if another(name) is not None}
    recipe = Recipe().replace(names)
    text = json.dumps(recipe.to_dict())
    assert Recipe.from_dict(json.loads(text)) == recipe
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert Recipe.from_dict({}) == Recipe()


def test_to_dict_shares_nothing_with_the_recipe() -> None:
    recipe = Recipe().replace({"model.position_options": {"base": 100}})
    recipe.to_dict()["model"]["position_options"]["base"] = 3
    assert recipe.model.position_options == {"base": 100}
    Recipe().model.position_options["x"] = 1
    assert Recipe().model.position_options == {}


# Fingerprints ----------------------------------------------------------------------------------------------------


def test_fingerprint_changes_with_each_field_that_can_change_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, field in NAMES.items():
        table = field.metadata["choices"]
        if isinstance(table, Registry) and len(choices(field)) == 1:  # give it something to change to
            monkeypatch.setitem(table._table, "another", table[choices(field)[0]])
        assert another(name) is not None
    base = Recipe().fingerprint("data")
    assert len(base) == 16
    assert int(base, 16) >= 0
    prints = {name: Recipe().replace({name: another(name)}).fingerprint("data") for name in FIELDS}
    unchanged = {name for name, value in prints.items() if value == base}
    assert unchanged == {"data.loader_workers", "train.log_every"}
    others = [value for name, value in prints.items() if name not in unchanged]
    assert len(set(others)) == len(others)


def test_a_toggle_that_came_later_does_not_count_while_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    neutral = {name for name, field in FIELDS.items() if field.metadata["neutral"]}
    assert "model.qk_norm" in neutral
    assert "model.n_heads" not in neutral
    counted: list[dict[str, Any]] = []
    dumps = json.dumps

    def remember(value: Any, **options: Any) -> str:
        counted.append(value)
        return dumps(value, **options)

    monkeypatch.setattr("transformer_ablate.config.json.dumps", remember)
    Recipe().fingerprint("data")
    Recipe().replace({"model.qk_norm": True}).fingerprint("data")
    off, on = (set(identity["recipe"]) for identity in counted)
    assert not off & neutral
    assert on - off == {"model.qk_norm"}
    assert counted[0]["versions"] == {}


def test_fingerprint_changes_with_the_data() -> None:
    assert Recipe().fingerprint("a") != Recipe().fingerprint("b")


def test_fingerprint_changes_with_the_version_of_a_component_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rope = Recipe().replace({"model.position": "rope"})
    cross = Recipe().replace({"model.cross_position": "rotary"})
    before = [r.fingerprint("data") for r in (Recipe(), rope, cross)]
    monkeypatch.setattr(Rotary, "version", 2)
    after = [r.fingerprint("data") for r in (Recipe(), rope, cross)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False]
    monkeypatch.setattr(registry.SCHEDULES["linear"], "version", 5, raising=False)
    assert Recipe().component_versions()["train.schedule"] == 5
    assert Recipe().fingerprint("data") != before[0]


def test_every_registered_component_counts_towards_the_fingerprint() -> None:
    used = {name for name, field in NAMES.items() if isinstance(field.metadata["choices"], Registry)}
    assert set(Recipe().component_versions()) == used
    assert used == {t.field for t in vars(registry).values() if isinstance(t, Registry)}


def test_fingerprint_is_the_same_in_another_process() -> None:
    delta = {"model.position": "rope", "model.position_options": {"layout": "half", "base": 100}, "train.lr": 0.1 + 0.2}
    code = f"from transformer_ablate.config import Recipe; print(Recipe().replace({delta!r}).fingerprint('d'))"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == Recipe().replace(delta).fingerprint("d")


def test_fingerprint_does_not_depend_on_the_order_of_options() -> None:
    forth, back = (
        Recipe().replace({"model.position": "rope", "model.position_options": dict(items)})
        for items in ([("base", 100), ("layout", "half")], [("layout", "half"), ("base", 100)])
    )
    assert forth.fingerprint("d") == back.fingerprint("d")


def test_equal_recipes_have_equal_fingerprints() -> None:
    one, other = Recipe().replace({"model.dropout": 0}), Recipe().replace({"model.dropout": 0.0})
    assert one == other
    assert one.fingerprint("d") == other.fingerprint("d")


# Base recipes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BASES))
def test_overrides_win_over_presets(name: str) -> None:
    for preset in ("smoke", "quick", "standard"):
        plain = base_recipe(name, preset)
        changed = base_recipe(name, preset, {"train.max_steps": 7, "model.position": "rope"})
        assert (changed.train.max_steps, changed.model.position) == (7, "rope")
        # Synthetic examples are fresh for all of training, however long it is.
        same = ("train.max_steps", "data.train_examples")
        back = {name: plain.flat()[name] for name in same}
        assert changed.replace({**back, "model.position": "sinusoidal"}) == plain
    sizes = [base_recipe(name, preset).train.max_steps for preset in ("smoke", "quick", "standard")]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("name", sorted(BASES))
def test_mistaken_presets_and_fields_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--preset: got 'quik', .*did you mean 'quick'"):
        base_recipe(name, "quik")
    with pytest.raises(ConfigError, match="did you mean 'max_steps'"):
        base_recipe(name, "quick", {"train.max_step": 3})


def test_a_registry_is_walked_like_a_dictionary() -> None:
    assert [name for name in registry.POSITIONS] == list(registry.POSITIONS.names())  # noqa: C416
    assert len(registry.POSITIONS) == len(registry.POSITIONS.names()) > 5
    assert "rope" in registry.POSITIONS
    assert "nope" not in registry.POSITIONS
