"""Draw every figure of the slides, the README and the notebooks' text: `make figures`.

    python slides/figures.py [FOLDER]      default: slides/figures

Measured figures are drawn from `slides/recorded/`, where each run keeps its date and machine. The
same input gives the same bytes; a test draws all of them again and compares.
"""

import sys
from pathlib import Path

from allhands.trace import diagrams, draw
from allhands.trace.events import read_events
from allhands.trace.summary import read_metrics

SLIDES = Path(__file__).resolve().parent
RECORDED = SLIDES / "recorded"


def lab1_seq2seq_model() -> draw.Picture:
    """The encoder-decoder of lab 1; the attention weights are invented."""
    return diagrams.encoder_decoder(
        ["twenty", "four", "EOS"], ["二", "十", "四", "EOS"], [0.1, 0.8, 0.1], looking=2
    )


def lab1_seq2seq_curve() -> draw.Picture:
    """Learning curves of lab1_cpu, three seeds."""
    runs = {f"seed {seed}": RECORDED / f"lab1_cpu_seed{seed}" for seed in (0, 1, 2)}
    metrics = {name: read_metrics(folder) for name, folder in runs.items()}
    return draw.learning_curve(metrics, "lab1_cpu: one CPU core")


def lab1_seq2seq_steps() -> draw.Picture:
    """Three steps of lab1_cpu on one CPU core."""
    events = read_events(RECORDED / "lab1_cpu_seed0" / "events.rank0.jsonl")
    return draw.gantt(events, "three steps of lab1_cpu on one CPU core")


FIGURES = (lab1_seq2seq_model, lab1_seq2seq_curve, lab1_seq2seq_steps)


def build(folder: Path) -> None:
    """Write `<figure>.svg` for every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        draw.save_svg(figure(), folder / f"{figure.__name__}.svg")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else SLIDES / "figures")
