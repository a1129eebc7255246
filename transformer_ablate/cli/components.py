"""The catalogue of components: what each is, where it comes from and what it costs, all from the registries.

``python -m transformer_ablate components`` prints it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transformer_ablate import registry
from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.positions.scaling import SCALINGS
from transformer_ablate.errors import ConfigError
from transformer_ablate.measures.size import forward_flops, parameter_count
from transformer_ablate.training.losses import SMOOTHED

# The base model of Vaswani et al. 2017 (table 3), on its joint vocabulary.
BASE = ModelConfig(d_model=512, n_heads=8, d_ff=2048, encoder_layers=6, decoder_layers=6, tying="all")
BASE_VOCABULARY = 37_000
# A table narrower than this would break every word; a pipe has no width of its own.
NARROWEST = 140
# Tokens of the source and of the target in the forward pass whose operations are counted.
COUNTED_LENGTH = 64
MODEL_PARTS: tuple[registry.Registry, ...] = (
    registry.ARCHITECTURES,
    registry.POSITIONS,
    registry.CROSS_POSITIONS,
    registry.FEED_FORWARDS,
    registry.NORMS,
    registry.NORM_PLACEMENTS,
)
# What stands in no registry: how rotary positions are scaled, and the model's switches and named choices.
SCALING_FIELD = "model.position_options.scaling"
TOGGLE_FIELD = "model.*"
TRAINING_PARTS: tuple[registry.Registry, ...] = (registry.SCHEDULES, registry.OPTIMIZERS)
# Up to a full stop that is followed by a space and does not stand in a formula.
_SENTENCE = re.compile(r"(?:``[^`]*``|[^.`]|`(?!`)|\.(?=\S))*")
_ROLE = re.compile(r":\w+:`~?([^`]*)`")
_CITATION = re.compile(r"\s*\(([^()]*\b(?:19|20)\d\d\b[^()]*)\)")


@dataclass(frozen=True)
class Component:
    """One entry of the catalogue.

    Attributes:
        field: the recipe field that names it.
        name: its name.
        options: names and defaults of its own options.
        what: one line of what it does.
        source: paper and equation or section; empty for an idea without one.
        parameters, flops: of the base model with it (operations of a forward pass of one pair of 64 tokens each);
            None for parts of the training.
        refused: why the base model cannot have it, if so.
    """

    field: str
    name: str
    options: dict[str, Any]
    what: str
    source: str
    parameters: int | None = None
    flops: int | None = None
    refused: str = ""


def describe(component: object) -> tuple[str, str]:
    """The first sentence of a component's docstring without its citation, and the citation."""
    paragraph = " ".join((inspect.getdoc(component) or "").split("\n\n")[0].split())
    found = _CITATION.search(paragraph)
    source = found.group(1) if found else ""
    sentence = _SENTENCE.match(_CITATION.sub("", paragraph))
    assert sentence is not None  # it matches the empty string
    return _ROLE.sub(r"\1", sentence.group(0)).replace("``", "").strip(), source


def options_of(component: Any, given: tuple[str, ...]) -> dict[str, Any]:
    """A component's own options with their defaults; ``given`` are parameters that do not come from the recipe."""
    parameters = inspect.signature(component).parameters.values()
    return {p.name: "needed" if p.default is p.empty else p.default for p in parameters if p.name not in given}


def components() -> Iterator[Component]:
    """Every registered component, in order of registration."""
    given = {
        registry.ARCHITECTURES: ("config", "source_size", "target_size"),
        registry.POSITIONS: ("geometry",),
        registry.CROSS_POSITIONS: ("geometry",),
    }
    for table in MODEL_PARTS:
        for name in table.names():
            what, source = describe(table[name])
            options = options_of(table[name], given[table]) if table in given else {}
            yield _costed(Component(table.field, name, options, what, source), table.field.partition(".")[2], name)
    for name, scaling in SCALINGS.items():
        what, source = describe(scaling)
        yield Component(SCALING_FIELD, name, options_of(scaling, ()), what, source)
    yield from toggles()
    for table in TRAINING_PARTS:
        for name in table.names():
            what, source = describe(table[name])
            yield Component(table.field, name, {}, what, source)
    for name, smoothed in SMOOTHED.items():
        what, source = describe(smoothed)
        yield Component("train.smoothing", name, {}, what, source)


def toggles() -> Iterator[Component]:
    """The model's switches and named choices that are no classes of their own, each away from its default."""
    for field in dataclasses.fields(ModelConfig):
        choices = field.metadata["choices"]
        if field.type == "bool":
            values: tuple[Any, ...] = (not field.default,)
        elif isinstance(choices, tuple):
            values = tuple(choice for choice in choices if choice != getattr(BASE, field.name))
        else:
            continue
        for value in values:
            shown = str(value).lower() if field.type == "bool" else value
            entry = Component(TOGGLE_FIELD, f"{field.name} {shown}", {}, field.metadata["help"], "")
            yield _costed(entry, field.name, value)


def _costed(component: Component, field: str, value: Any) -> Component:
    """The entry with the cost of the base model of which one field is changed."""
    named: dict[str, Any] = {field: value}
    changed = dataclasses.replace(BASE, **named)
    try:
        with torch.device("meta"):  # without drawing tens of millions of initial values
            model = build_model(changed, BASE_VOCABULARY, BASE_VOCABULARY).eval()
        parameters = parameter_count(model)  # before tied tensors are given storage of their own
        model.to_empty(device="cpu")
        for tensor in (*model.parameters(), *model.buffers()):
            torch.nn.init.zeros_(tensor)  # what the memory happens to hold could be NaN
        flops = forward_flops(model, COUNTED_LENGTH, COUNTED_LENGTH)
    except ConfigError as error:
        return dataclasses.replace(component, refused=str(error))
    return dataclasses.replace(component, parameters=parameters, flops=flops)


def print_catalogue(console: Console) -> None:
    """Prints the catalogue as one table a field."""
    with torch.device("meta"):
        base = parameter_count(build_model(BASE, BASE_VOCABULARY, BASE_VOCABULARY))
    console.print(
        f"Base size: d_model {BASE.d_model}, {BASE.n_heads} heads, {BASE.encoder_layers}+{BASE.decoder_layers} layers,"
        f" d_ff {BASE.d_ff}, joint vocabulary of {BASE_VOCABULARY:,} tied in all places: {base / 1e6:.2f} M parameters."
        f"\nFLOPs: one forward pass of a source and a target of {COUNTED_LENGTH} tokens, two a multiply-add.\n"
    )
    tables: dict[str, Table] = {}
    for component in components():
        if component.field not in tables:
            tables[component.field] = _table(component.field)
        own = ", ".join(f"{name}={value}" for name, value in component.options.items())
        parameters = "" if component.parameters is None else f"{component.parameters / 1e6:.2f} M"
        flops = "" if component.flops is None else f"{component.flops / 1e9:.2f} G"
        what = component.what + (f" (not at the base size: {component.refused})" if component.refused else "")
        texts = (escape(text) for text in (own, parameters, flops, what, component.source))
        tables[component.field].add_row(escape(component.name), *texts)
    for table in tables.values():
        console.print(table)


def _table(field: str) -> Table:
    table = Table(title=f"--{field}", title_justify="left", title_style="bold", expand=False)
    for heading in ("name", "options"):
        table.add_column(heading)
    for heading in ("parameters", "FLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("what it does", "source"):
        table.add_column(heading)
    return table


def main() -> int:
    """Prints the catalogue to the terminal, or wide enough for a file; the exit status."""
    print_catalogue(Console(width=max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns)))
    return 0
