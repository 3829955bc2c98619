"""Does the store give every pair back, count what it drops, and leave no half store in a folder?"""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data import store as store_module
from allhands.data.corpus import CorpusError, Pair
from allhands.data.store import PairStore
from allhands.data.tokens import split
from allhands.data.vocab import UNK, Vocab, build_pair

PAIRS = [
    Pair("a b b", "xy", "f:1"),
    Pair("", "x", "f:2"),
    Pair("b a a a", "y", "f:3"),
    Pair("a", "yx y", "f:4"),
]


def encode(pairs, **settings):
    source, target = build_pair(pairs, "spaces", "chars")
    return PairStore.encode(iter(pairs), source, target, "spaces", "chars", **settings)


@pytest.fixture(params=["memory", "folder"])
def folder(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "store"


def test_a_store_by_hand(folder):
    # a comes 5 times and b 3 times: ids 4 and 5; y comes 4 times and x twice: ids 4 and 5.
    store = encode(PAIRS, folder=folder)
    assert len(store) == 3
    assert store.dropped == 1
    assert [store.source(i).tolist() for i in range(3)] == [[4, 5, 5], [5, 4, 4, 4], [4]]
    assert [store.target(i).tolist() for i in range(3)] == [[5, 4], [4], [4, 5, 4]]
    assert store.source_lengths.tolist() == [3, 4, 1]
    assert store.target_lengths.tolist() == [2, 1, 3]
    for row in (store.source(0), store.target(0), store.source_lengths, store.target_lengths):
        assert row.dtype == np.int32


def test_the_length_filter_counts_what_it_drops(folder):
    store = encode(PAIRS, max_length=3, folder=folder)
    assert [store.source(i).tolist() for i in range(len(store))] == [[4, 5, 5], [4]]
    assert store.dropped == 2


def test_nothing_can_be_written_into_a_store(folder):
    store = encode(PAIRS, folder=folder)
    with pytest.raises(ValueError, match="read-only"):
        store.source(0)[0] = 7


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_pair_outside_the_store_is_refused(folder, wrong):
    store = encode(PAIRS, folder=folder)
    for side in (store.source, store.target):
        with pytest.raises(IndexError, match=f"pairs 0 to 2; asked for pair {wrong}"):
            side(wrong)


def test_unknown_tokens_become_unk(folder):
    vocab = Vocab.build([["a"]])
    store = PairStore.encode(
        [Pair("a c", "c", "f:1")], vocab, vocab, "spaces", "spaces", folder=folder
    )
    assert store.source(0).tolist() == [4, UNK]
    assert store.target(0).tolist() == [UNK]


texts = st.text("abc é,1 ", max_size=12)


@given(st.lists(st.tuples(texts, texts), max_size=30), st.integers(1, 9), st.integers(1, 9))
def test_memory_and_folder_hold_what_the_filter_kept(
    tmp_path_factory, sentences, max_length, waiting
):
    pairs = [Pair(source, target, f"f:{i}") for i, (source, target) in enumerate(sentences)]
    kept = [
        (source, target)
        for source, target in ((split(s, "words"), split(t, "chars")) for s, t in sentences)
        if 0 < len(source) <= max_length and 0 < len(target) <= max_length
    ]
    vocabs = build_pair(pairs, "words", "chars")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            store_module, "_WAITING", waiting
        )  # so that small rows go to the file in parts
        for folder in (None, tmp_path_factory.mktemp("store")):
            settings = {"max_length": max_length, "folder": folder}
            if not kept:
                with pytest.raises(CorpusError):
                    PairStore.encode(pairs, *vocabs, "words", "chars", **settings)
                continue
            store = PairStore.encode(pairs, *vocabs, "words", "chars", **settings)
            assert store.dropped == len(pairs) - len(kept)
            assert [
                (vocabs[0].decode(store.source(i)), vocabs[1].decode(store.target(i)))
                for i in range(len(store))
            ] == kept
            n_tokens = sum(len(source) + len(target) for source, target in kept)
            assert store.nbytes == 4 * n_tokens + 2 * 8 * (len(kept) + 1)


# --- folders


def test_a_folder_opens_again(tmp_path):
    first = encode(PAIRS, folder=tmp_path / "deep" / "store")
    again = PairStore.open(tmp_path / "deep" / "store")
    assert [again.source(i).tolist() for i in range(3)] == [
        first.source(i).tolist() for i in range(3)
    ]
    assert again.dropped == 1
    assert isinstance(again.source_ids, np.memmap)


def test_a_folder_without_a_store_is_named(tmp_path):
    with pytest.raises(CorpusError, match=re.escape(f"{tmp_path} holds no finished store")):
        PairStore.open(tmp_path)


def test_encoding_that_breaks_off_leaves_no_store(tmp_path):
    encode(PAIRS, folder=tmp_path)

    def broken():
        yield from PAIRS
        raise CorpusError("f, line 5: broken.")

    vocabs = build_pair(PAIRS, "spaces", "chars")
    with pytest.raises(CorpusError, match="line 5"):
        PairStore.encode(broken(), *vocabs, "spaces", "chars", folder=tmp_path)
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(CorpusError, match="holds no finished store"):
        PairStore.open(tmp_path)


def test_a_store_in_use_survives_a_new_one_in_its_folder(tmp_path):
    old = encode(PAIRS, folder=tmp_path)
    new = encode(PAIRS[:1], folder=tmp_path)
    assert len(new) == 1
    assert old.source(2).tolist() == [4]


# --- nothing left


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([], "the corpus gave no sentence pair"),
        (
            [Pair("", "x", "f:1"), Pair("a", " ", "f:2")],
            "No pair is left: all 2 have a blank side, from f:1 on.",
        ),
        (
            [Pair("", "x", "f:7"), Pair("a a a a", "y", "f:8"), Pair("a", "x" * 6, "f:9")],
            "No pair is left of 3, from f:7 on: 1 have a blank side and the others more than "
            "max_length=2 tokens. The shortest of them needs max_length=4.",
        ),
    ],
)
def test_a_corpus_of_which_nothing_is_left_is_refused(folder, pairs, sentence):
    vocab = Vocab.build([["a"]])
    with pytest.raises(CorpusError, match=re.escape(sentence)):
        PairStore.encode(pairs, vocab, vocab, "spaces", "chars", max_length=2, folder=folder)


def test_an_impossible_limit_is_refused():
    with pytest.raises(ValueError, match="max_length must be 1 token or more; it is 0"):
        encode(PAIRS, max_length=0)
