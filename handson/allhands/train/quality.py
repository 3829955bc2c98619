"""How good translations are: exact match, BLEU and chrF over a whole corpus.

All three are between 0 and 100. BLEU and chrF are sacrebleu's, so that figures can be compared with
others; for a target that is cut into characters (Japanese here) BLEU counts characters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sacrebleu


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
    same = sum(t == r for t, r in zip(translations, references, strict=True))
    tokenize = {"chars": "char", "words": "13a", "spaces": "none"}[target_tokens]
    return Quality(
        exact_match=100 * same / len(references),
        bleu=sacrebleu.corpus_bleu(translations, [references], tokenize=tokenize).score,
        chrf=sacrebleu.corpus_chrf(translations, [references]).score,
    )
