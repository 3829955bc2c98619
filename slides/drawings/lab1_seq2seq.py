"""The figures of lab 1's talk."""

import json
from pathlib import Path

import numpy as np

from allhands import config as configs
from allhands.data import tokens
from allhands.trace import diagrams, draw
from allhands.trace.summary import read_metrics
from allhands.trace.talks import canvas, curves, translator
from allhands.train.build import open_corpus

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
N_TARGET = 30  # entries of the target vocabulary of lab1_cpu


def lab1_seq2seq_talk_model() -> draw.Picture:
    """The encoder-decoder; the attention weights are invented."""
    picture = diagrams.encoder_decoder(
        ["twenty", "four", "EOS"], ["二", "十", "四", "EOS"], [0.1, 0.8, 0.1], looking=2
    )
    return canvas.for_slide(picture, size=(7.6, 3.3), least_pt=10)


def lab1_seq2seq_talk_ids() -> draw.Picture:
    """A date of the validation set, its tokens and their ids."""
    text = "Apr 2, 1922"
    vocab = open_corpus(configs.lab1_cpu()).source_vocab
    cut = tokens.split(text, configs.lab1_cpu().source_tokens)
    pairs = list(zip(cut, vocab.encode(cut), strict=True))
    return translator.token_ids(text, pairs, ("PAD", "BOS", "EOS", "UNK"))


def lab1_seq2seq_talk_own_words() -> draw.Picture:
    """A decoder that translates."""
    return translator.own_words(("二", "十", "四", "EOS"))


def lab1_seq2seq_talk_rectangle() -> draw.Picture:
    """The Japanese sides of six validation pairs as one rectangle."""
    targets = (
        "1916年7月24日",
        "2009年10月30日",
        "2030年6月16日",
        "千百七",
        "四百九十五",
        "1922年4月2日",
    )
    return translator.padded_rows([[*tokens.split(target, "chars"), "EOS"] for target in targets])


def lab1_seq2seq_talk_two_losses() -> draw.Picture:
    """Two trainings by hand that differ in `shift`, without their names."""
    found = json.loads((RECORDED / "lab1_two_shifts.json").read_text(encoding="utf-8"))["runs"]
    names = {"A": "as the lab gives it", "B": "mended"}
    return curves.two_losses({f"model {a}": found[b]["losses"] for a, b in names.items()})


def lab1_seq2seq_talk_first_updates() -> draw.Picture:
    """The first updates of lab1_cpu, three seeds."""
    losses = {
        f"seed {seed}": read_metrics(RECORDED / f"lab1_cpu_seed{seed}").losses for seed in (0, 1, 2)
    }
    return curves.first_updates(losses, N_TARGET, most=40)


def lab1_seq2seq_talk_alignment() -> draw.Picture:
    """Where a trained decoder looks while it says a number."""
    found = json.loads((RECORDED / "lab1_alignment.json").read_text(encoding="utf-8"))
    picture = draw.alignment(np.array(found["weights"]), found["source"], found["target"])
    return canvas.for_slide(picture)


FIGURES = (
    lab1_seq2seq_talk_model,
    lab1_seq2seq_talk_ids,
    lab1_seq2seq_talk_own_words,
    lab1_seq2seq_talk_rectangle,
    lab1_seq2seq_talk_two_losses,
    lab1_seq2seq_talk_first_updates,
    lab1_seq2seq_talk_alignment,
)
