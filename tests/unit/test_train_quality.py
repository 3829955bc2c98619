"""Quality: worked by hand where a hand can, and sacrebleu's own answer at the ends."""

import pytest

from allhands.train.quality import judge


def test_two_of_four_exact_is_half():
    quality = judge(
        ["五月", "六月", "七", "八月一日"], ["五月", "六月", "七月", "八月二日"], "chars"
    )
    assert quality.exact_match == 50


def test_a_perfect_translation_scores_100_everywhere():
    quality = judge(["2001年2月20日"], ["2001年2月20日"], "chars")
    assert quality.exact_match == 100
    assert quality.bleu == pytest.approx(100)
    assert quality.chrf == pytest.approx(100)


def test_nothing_in_common_scores_0():
    quality = judge(["一二三四五"], ["六七八九十"], "chars")
    assert (quality.exact_match, quality.chrf) == (0, 0)
    assert quality.bleu < 20  # sacrebleu smooths the zero counts of a short text


def test_bleu_of_characters_by_hand():
    # n-gram precisions of 一二三四五 against 一二三四六: 4/5, 3/4, 2/3, 1/2; equal length, so
    # BLEU is (4/5 * 3/4 * 2/3 * 1/2) ** (1/4) = 0.2 ** 0.25
    quality = judge(["一二三四五"], ["一二三四六"], "chars")
    assert quality.bleu == pytest.approx(100 * 0.2**0.25)


@pytest.mark.parametrize(
    ("translations", "references"), [(["a"], []), ([], []), (["a"], ["a", "b"])]
)
def test_unequal_or_empty_lists_are_refused(translations, references):
    with pytest.raises(ValueError, match="as many translations as references"):
        judge(translations, references, "words")
