"""Of which generation is a GPU, and has it Tensor Cores? By its name; the first row decides.

Names are as the driver writes them: "Tesla T4", "NVIDIA RTX A2000". A row holds whole words: T400
is no T4, and RTX A1000 no A100. Source: NVIDIA, "CUDA GPUs" (chips by compute capability) and the
chips' datasheets. The small chips of Turing (GTX 16, T400 to T2000, MX450) have no Tensor Cores.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """words: regular expressions of whole words in a GPU's name, case ignored."""

    words: str
    name: str
    tensor_cores: bool = True


GENERATIONS = (
    # What is told by a word beside the number: an RTX 6000 is of Turing, of Ada or of Blackwell.
    Generation(r"blackwell|RTX 50[5-9]0|G?B[123]00|GB10|Thor", "Blackwell"),
    Generation(r"Ada|RTX 40[5-9]0|L40[SG]?|L4|L20|L2", "Ada"),
    Generation(r"hopper|G?H100|G?H200|H800|H20", "Hopper"),
    # Without Tensor Cores.
    Generation(
        r"kepler|K10|K20[CMX]?|K40[CMST]?|K80|GTX [67]\d\d|Quadro K\d+",
        "Kepler",
        tensor_cores=False,
    ),
    Generation(
        r"maxwell|Tesla M[46]|M10|M40|M60|GTX 9\d\d|GTX TITAN X|Quadro M\d+",
        "Maxwell",
        tensor_cores=False,
    ),
    Generation(
        r"pascal|P4|P6|P40|P100|GTX? 10\d\d|TITAN Xp?|MX[123]\d0|Quadro G?P\d+",
        "Pascal",
        tensor_cores=False,
    ),
    Generation(
        r"GTX 16\d\d|MX450|MX550|T400|T500|T550|T600|T1000|T1200|T2000",
        "Turing",
        tensor_cores=False,
    ),
    # With Tensor Cores.
    Generation(r"volta|V100[SL]?|GV100|TITAN V|Xavier", "Volta"),
    Generation(r"turing|T4G?|T10|TITAN RTX|RTX 20[678]0|RTX [34568]000", "Turing"),
    Generation(
        r"ampere|A100[XM]?|A800|A2|A10[GM]?|A16|A30X?|A40|A[45]00|A[1-6][05]00|"
        r"RTX 2050|RTX 30[5-9]0|MX570|Orin",
        "Ampere",
    ),
    # By the number of the architecture.
    Generation(r"sm_?3\d", "Kepler", tensor_cores=False),
    Generation(r"sm_?5\d", "Maxwell", tensor_cores=False),
    Generation(r"sm_?6\d", "Pascal", tensor_cores=False),
    Generation(r"sm_?7[02]", "Volta"),
    Generation(r"sm_?75", "Turing"),
    Generation(r"sm_?8[0678]", "Ampere"),
    Generation(r"sm_?89", "Ada"),
    Generation(r"sm_?90a?", "Hopper"),
    Generation(r"sm_?1[012]\d[af]?", "Blackwell"),
)
# A laptop's chip ends in Ti, SUPER or M; "RTX 3080Ti" is written in one word as well.
_COMPILED = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{one.words})(?:Ti|M)?(?![a-z0-9])", re.IGNORECASE), one)
    for one in GENERATIONS
)
ONLY_FP16 = ("Volta", "Turing")  # whose Tensor Cores take FP16 (Turing also integers), not FP32


def generation_of(chip: str) -> Generation | None:
    """Return the generation of a GPU by its name, None if the name is not known here."""
    return next((one for pattern, one in _COMPILED if pattern.search(chip)), None)
