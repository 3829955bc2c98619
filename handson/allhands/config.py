"""What is one training run? A complete config: made by a preset, changed by name.

A run is nothing but its `TrainConfig`; it is saved with the run as `config.json`. Conventions:
lengths are in tokens, times in seconds, an epoch is one pass over the training pairs.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

POSITIVE = (
    *("max_length", "vocab_multiple", "n_embed", "n_hidden", "batch_size", "epochs", "beam_width"),
    *("evaluate_every", "evaluate_pairs", "snapshot_every", "learning_rate", "clip_norm"),
)
FINITE = ("learning_rate", "last_learning_rate", "clip_norm")
CHOICES = {
    "communicator": ("auto", "naive", "flat", "pure_nccl", "non_cuda_aware"),
    "rate_scaling": ("none", "sqrt", "linear"),
    "allreduce_dtype": ("float32", "float16"),
    "precision": ("fp32", "mixed", "fp16"),
}
AS_STARTED = 0  # ranks of a preset that runs on as many ranks as are started
LONGEST = 10_000  # tokens: far above any sentence, far below what fills the memory


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the result of a run, except the machine.

    `train`, `valid` and `test` are corpus names as `allhands.data.corpus.read_pairs` takes them: an
    embedded split (`numbers_dates/train`), a file of columns (`pairs.tsv.gz`) or a pair of files
    (`text.en:text.ja`). `source_tokens` and `target_tokens` say how text is cut: `words`, `chars`
    or `spaces`. `vocab_multiple` rounds the model's vocabulary sizes up, as Tensor Cores want it
    (8). `device` is Chainer's device specifier, or `auto` for a GPU where there is one.
    """

    preset: str
    train: str = "numbers_dates/train"
    valid: str = "numbers_dates/valid"
    test: str = "numbers_dates/test"
    source_tokens: str = "words"
    target_tokens: str = "chars"
    max_vocab: int | None = None
    vocab_multiple: int = 1
    max_length: int = 50
    n_embed: int = 64
    n_hidden: int = 128
    batch_size: int = 64
    epochs: int = 4
    learning_rate: float = 3e-3
    last_learning_rate: float = 1.5e-4
    clip_norm: float = 5.0
    seed: int = 0
    device: str = "auto"
    evaluate_every: int = 125
    evaluate_pairs: int = 200
    snapshot_every: int = 125
    beam_width: int = 1
    ranks: int = 1
    communicator: str = "auto"
    rate_scaling: str = "none"
    double_buffering: bool = False
    allreduce_dtype: str = "float32"
    precision: str = "fp32"
    loss_scale: str = "dynamic"

    def __post_init__(self) -> None:
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{name} must be greater than 0: it is {getattr(self, name)}. "
                    f"Give a positive number, such as --set {name}=1."
                )
        if not self.last_learning_rate >= 0:
            raise ValueError(
                f"last_learning_rate must not be negative: it is {self.last_learning_rate}."
            )
        for name in FINITE:
            if not math.isfinite(getattr(self, name)):
                raise ValueError(
                    f"{name} must be a finite number: it is {getattr(self, name)}. "
                    f"Give a number, such as --set {name}=0.001."
                )
        if self.max_length > LONGEST:
            raise ValueError(
                f"max_length may be {LONGEST} tokens at most: it is {self.max_length}. "
                f"Give the length of your longest sentences, such as --set max_length=100."
            )
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}: it is {getattr(self, name)!r}. "
                    f"Give one of them, such as --set {name}={known[0]}."
                )
        if self.ranks < 0:
            raise ValueError(
                f"ranks must not be negative: it is {self.ranks}. Give --set ranks=2, for example, "
                f"or 0 for as many as are started."
            )
        if self.communicator not in ("auto", "pure_nccl"):
            for name, plain in (("double_buffering", False), ("allreduce_dtype", "float32")):
                if getattr(self, name) != plain:
                    raise ValueError(
                        f"{name}={getattr(self, name)} needs the communicator pure_nccl, which "
                        f"needs GPUs: this run has {self.communicator}. Give --set {name}={plain}."
                    )
        if not _is_loss_scale(self.loss_scale):
            raise ValueError(
                f"loss_scale must be dynamic, none or a positive number: it is {self.loss_scale}. "
                f"Give one of them, such as --set loss_scale=1024."
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(
                f"seed must lie between 0 and {2**32 - 1}: it is {self.seed}. "
                f"Give another, such as --set seed=1."
            )


def _is_loss_scale(text: str) -> bool:
    try:
        return text in ("dynamic", "none") or 0 < float(text) < math.inf
    except ValueError:
        return False


def lab1_cpu() -> TrainConfig:
    """The translator of lab 1 on one CPU core: nothing to a good translator in half a minute."""
    return TrainConfig(preset="lab1_cpu", device="@numpy")


def lab1_gpu() -> TrainConfig:
    """The same translator on one GPU: wider, with batches that give a GPU something to do."""
    return TrainConfig(
        preset="lab1_gpu", device="@cupy:0", n_embed=256, n_hidden=512, batch_size=256, epochs=20
    )


def lab1_real() -> TrainConfig:
    """Real sentences from Tatoeba: honest, lower figures. After 8 epochs it begins to overfit."""
    return TrainConfig(
        preset="lab1_real",
        train="tatoeba_short/train",
        valid="tatoeba_short/valid",
        test="tatoeba_short/test",
        epochs=8,
        evaluate_every=188,
        snapshot_every=188,
        beam_width=4,
    )


def lab2_cpu() -> TrainConfig:
    """Lab 1's translator, data-parallel on CPU ranks: each rank brings its batch of 64 pairs.

    Eight epochs are enough on 1, 2 and 4 ranks alike: 1,000, 504 and 256 updates.
    """
    return TrainConfig(
        preset="lab2_cpu",
        device="@numpy",
        ranks=AS_STARTED,
        communicator="naive",
        rate_scaling="linear",
        epochs=8,
        evaluate_every=128,
        snapshot_every=128,
    )


def lab2_gpu() -> TrainConfig:
    """The same on GPUs, one a rank: the wider model of lab1_gpu, and gradients over NCCL."""
    return TrainConfig(
        preset="lab2_gpu",
        n_embed=256,
        n_hidden=512,
        batch_size=256,
        epochs=20,
        ranks=AS_STARTED,
        communicator="pure_nccl",
        rate_scaling="linear",
    )


def lab3_cpu() -> TrainConfig:
    """The translator in mixed precision, small: a CPU is many times slower in float16."""
    return TrainConfig(
        preset="lab3_cpu",
        device="@numpy",
        precision="mixed",
        n_embed=32,
        n_hidden=48,
        batch_size=32,
        epochs=1,
        learning_rate=6e-3,
        evaluate_pairs=50,
    )


def lab3_gpu() -> TrainConfig:
    """Mixed precision for Tensor Cores: a wide model, a large batch, all sizes multiples of 8."""
    return TrainConfig(
        preset="lab3_gpu",
        device="@cupy:0",
        precision="mixed",
        vocab_multiple=8,
        n_embed=512,
        n_hidden=2048,
        batch_size=1024,
        epochs=40,
        learning_rate=1e-3,
        last_learning_rate=5e-5,
        evaluate_every=80,
        snapshot_every=80,
    )


def lab3_gpu_fp32() -> TrainConfig:
    """The same in FP32, to compare with."""
    return dataclasses.replace(lab3_gpu(), preset="lab3_gpu_fp32", precision="fp32")


PRESETS: dict[str, Callable[[], TrainConfig]] = {
    preset.__name__: preset
    for preset in (
        lab1_cpu,
        lab1_gpu,
        lab1_real,
        lab2_cpu,
        lab2_gpu,
        lab3_cpu,
        lab3_gpu,
        lab3_gpu_fp32,
    )
}


def preset(name: str) -> TrainConfig:
    """Return the preset of that name; ValueError names the presets that exist."""
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}. The presets are: {', '.join(PRESETS)}.")
    return PRESETS[name]()


def on_ranks(config: TrainConfig, started: int) -> TrainConfig:
    """Return `config` as it is for `started` ranks; ValueError if it is a run on another number."""
    if config.ranks == AS_STARTED:
        return dataclasses.replace(config, ranks=started)
    if config.ranks == started:
        return config
    ranks = "1 rank" if config.ranks == 1 else f"{config.ranks} ranks"
    if config.ranks == 1:
        mend = "Start it on one, or take a preset for several, such as lab2_cpu."
    else:
        mend = f"Give --ranks {config.ranks}, or start them with mpiexec -n {config.ranks}."
    raise ValueError(f"{config.preset} is a run on {ranks} here, and {started} came up. {mend}")


def override(config: TrainConfig, assignments: Iterable[str]) -> TrainConfig:
    """Return `config` with `key=value` assignments applied; values are read by the field's type.

    Raises ValueError for an unknown key (with the keys that exist) or a value that does not fit.
    """
    kinds = typing.get_type_hints(TrainConfig)
    changes = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"Expected key=value, saw {assignment!r}. Write, for example, seed=1.")
        if key not in kinds:
            raise ValueError(
                f"There is no setting {key!r}. The settings are: {', '.join(sorted(kinds))}."
            )
        changes[key] = _parse(key, text, kinds[key])
    return dataclasses.replace(config, **changes)


def _parse(key: str, text: str, kind: type) -> object:
    if isinstance(kind, types.UnionType):  # int | None
        if text.lower() == "none":
            return None
        kind = next(member for member in typing.get_args(kind) if member is not types.NoneType)
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in words:
            raise ValueError(f"{key} takes true or false, saw {text!r}.")
        return words[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{key} takes a value of type {kind.__name__}, saw {text!r}.") from None


def save(config: TrainConfig, path: Path) -> None:
    """Write `config` as JSON."""
    path.write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n", encoding="utf-8")


def load(path: Path) -> TrainConfig:
    """Read a `config.json`; ValueError in a sentence when it is not one."""
    try:
        return TrainConfig(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error}.") from error


def differences(old: TrainConfig, new: TrainConfig) -> list[str]:
    """Say, a line a setting, where two configs differ: `epochs: 4 -> 5`."""
    pairs = zip(dataclasses.asdict(old).items(), dataclasses.asdict(new).values(), strict=True)
    return [f"{key}: {was} -> {now}" for (key, was), now in pairs if was != now]
