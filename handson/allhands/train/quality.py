"""How good translations are: exact match, BLEU and chrF over a whole corpus.

All three are between 0 and 100. BLEU and chrF are sacrebleu's, so that figures can be compared with
others; for a target that is cut into characters (Japanese here) BLEU counts characters.

All three are ratios of sums over the sentences. So they are made in two steps: `count` gives the
sums, which may be added over parts of a corpus (and over ranks), and `quality` makes the figures. A
mean of the parts' figures would be another number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.bleu import MAX_NGRAM_ORDER as N_GRAMS

BLEU_SUMS = [f"bleu_{kind}_{n}" for kind in ("hits", "total") for n in range(1, N_GRAMS + 1)]
BLEU_SUMS += ["bleu_length", "bleu_reference_length"]
CHRF_SUMS = [
    f"chrf_{kind}_{n}"
    for n in range(1, CHRF.CHAR_ORDER + 1)
    for kind in ("total", "wanted", "hits")
]


@dataclass(frozen=True)
class Quality:
    exact_match: float
    bleu: float
    chrf: float


def judge(translations: Sequence[str], references: Sequence[str], target_tokens: str) -> Quality:
    """Compare translations with references, one sentence each, in the same order.

    BLEU: Papineni et al. 2002; chrF: Popovic 2015; both by sacrebleu (Post 2018).
    """
    if len(translations) != len(references) or not references:
        raise ValueError(
            f"Expected as many translations as references and at least one, saw "
            f"{len(translations)} and {len(references)}."
        )
    return quality(count(translations, references, target_tokens))


def count(
    translations: Sequence[str], references: Sequence[str], target_tokens: str
) -> dict[str, int]:
    """Return the sums that the figures are made of, by name; no sentences give zeros.

    `n_sentences`, `hits` (translations that are the reference), and sacrebleu's counts of n-grams.
    """
    sums = dict.fromkeys(("n_sentences", "hits", *BLEU_SUMS, *CHRF_SUMS), 0)
    if not references:
        return sums
    tokenize = {"chars": "char", "words": "13a", "spaces": "none"}[target_tokens]
    bleu = BLEU(tokenize=tokenize).corpus_score(translations, [references])
    sums |= zip(BLEU_SUMS, (*bleu.counts, *bleu.totals, bleu.sys_len, bleu.ref_len), strict=True)
    by_sentence = CHRF()._extract_corpus_statistics(translations, [references])
    chrf = [sum(column) for column in zip(*by_sentence, strict=True)]
    sums |= zip(CHRF_SUMS, chrf, strict=True)
    sums["n_sentences"] = len(references)
    sums["hits"] = sum(t == r for t, r in zip(translations, references, strict=True))
    return sums


def quality(sums: Mapping[str, float]) -> Quality:
    """Make the figures of what `count` gave, added up over all parts; more names may be there."""
    numbers = [int(sums[name]) for name in BLEU_SUMS]
    hits, totals = numbers[:N_GRAMS], numbers[N_GRAMS : 2 * N_GRAMS]
    bleu = BLEU.compute_bleu(hits, totals, *numbers[2 * N_GRAMS :], smooth_method="exp")
    chrf = CHRF()._compute_score_from_stats([int(sums[name]) for name in CHRF_SUMS])
    return Quality(100 * sums["hits"] / sums["n_sentences"], bleu.score, chrf.score)
