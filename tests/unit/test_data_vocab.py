"""Does every token have one number, and does every number give its token back?"""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data.corpus import Pair
from allhands.data.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocab, build_pair

# Tokens as a corpus gives them: no blanks, and not a special's name.
tokens = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1
).filter(lambda token: token not in SPECIALS)
sentences = st.lists(st.lists(tokens, max_size=8), max_size=8)


def test_the_specials_are_the_first_four_ids():
    assert [Vocab(SPECIALS).tokens[i] for i in (PAD, BOS, EOS, UNK)] == list(SPECIALS)


def test_ids_by_hand():
    # b three times; a and c twice, so the alphabet decides; d once.
    vocab = Vocab.build([["b", "c", "b"], ["a", "c"], ["a", "b", "d"]])
    assert vocab.tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "b", "a", "c", "d")
    assert vocab.encode(["a", "x", "b"]) == [5, UNK, 4]
    assert vocab.decode([BOS, 5, PAD, UNK, 4, EOS, 6]) == ["a", "<unk>", "b"]


@given(sentences)
def test_what_was_encoded_decodes_to_itself(corpus):
    vocab = Vocab.build(corpus)
    for sentence in corpus:
        ids = vocab.encode(sentence)
        assert UNK not in ids
        assert vocab.decode(ids) == sentence
        assert vocab.decode([BOS, *ids, EOS, PAD, *ids]) == sentence


@given(sentences, st.integers(5, 20))
def test_a_limit_keeps_the_most_frequent(corpus, max_size):
    counts = Counter(token for sentence in corpus for token in sentence)
    vocab = Vocab.build(corpus, max_size)
    assert len(vocab) == min(max_size, len(SPECIALS) + len(counts))
    kept = vocab.tokens[len(SPECIALS) :]
    left_out = set(counts) - set(kept)
    assert all(counts[one] >= counts[other] for one in kept for other in left_out)


@given(sentences)
def test_the_order_of_the_sentences_does_not_matter(corpus):
    assert Vocab.build(corpus) == Vocab.build(reversed(corpus))


@given(sentences)
def test_a_saved_vocabulary_loads_again(tmp_path_factory, corpus):
    path = tmp_path_factory.mktemp("vocab") / "source.vocab"
    vocab = Vocab.build(corpus)
    vocab.save(path)
    assert Vocab.load(path) == vocab
    assert path.read_bytes().count(b"\n") == len(vocab)
    assert [file.name for file in path.parent.iterdir()] == ["source.vocab"]


def test_saving_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "source.vocab"
    old = Vocab.build([["old"]])
    old.save(path)
    with pytest.raises(UnicodeEncodeError):
        Vocab((*SPECIALS, "\ud800")).save(path)  # half of a surrogate pair: UTF-8 cannot write it
    assert Vocab.load(path) == old
    assert [file.name for file in tmp_path.iterdir()] == ["source.vocab"]


def test_a_specials_name_in_a_text_is_not_the_special():
    vocab = Vocab.build([["<eos>", "a", "<pad>"]])
    assert vocab.tokens == (*SPECIALS, "a")
    assert vocab.encode(["<eos>", "a", "<pad>"]) == [UNK, 4, UNK]


@pytest.mark.parametrize("wrong", [-1, 5, 100])
def test_an_id_outside_the_vocabulary_is_refused(wrong):
    with pytest.raises(ValueError, match=re.escape(f"from 0 to 4; asked for the token of {wrong}")):
        Vocab.build([["a"]]).decode([wrong])


def test_an_id_after_the_end_is_not_looked_at():
    assert Vocab.build([["a"]]).decode([4, EOS, 99]) == ["a"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "begins with"),
        (b"a\nb\n", "begins with"),
        (b"<pad>\n<bos>\n<eos>\n<unk>\na\na\n", "'a' stands at 4 and at 5"),
        (b"<pad>\n<bos>\n<eos>\n<unk>\n\nb\n", "token 4 is ''"),
        (b"<pad>\n<bos>\n<eos>\n<unk>\n\xff\n", "0xff"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, content, sentence):
    path = tmp_path / "odd.vocab"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        Vocab.load(path)
    assert str(path) in str(error.value)


def test_a_vocabulary_without_room_for_a_token_is_refused():
    with pytest.raises(ValueError, match=r"max_size is 4\. Give 5 or more"):
        Vocab.build([["a"]], max_size=4)


def test_both_vocabularies_come_from_one_pass_over_the_pairs_that_fit():
    pairs = [
        Pair("A cat", "ねこ", "f:1"),
        Pair("a long long dog", "いぬ", "f:2"),  # 4 words: over the limit
        Pair("blank", " ", "f:3"),
    ]
    source, target = build_pair(iter(pairs), "words", "chars", max_length=3)
    assert source.tokens == (*SPECIALS, "a", "cat")
    assert target.tokens == (*SPECIALS, "こ", "ね")
    small, _ = build_pair(iter(pairs), "words", "chars", max_length=3, max_size=5)
    assert small.tokens == (*SPECIALS, "a")
