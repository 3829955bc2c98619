"""How is a sentence cut into tokens, and how are tokens put together again?

Three ways, each a name that a config can hold:

- "words": lower-case words; punctuation marks stand apart and digits stand one by one, so that any
  number can be read with ten symbols. "Don't pay $15." gives don't pay $ 1 5 .
- "chars": every character; blanks are dropped. Fits Japanese, which writes no blanks.
- "spaces": what stands between blanks, unchanged. For corpora that are tokenised already.

"words" takes letters of any alphabet, but not the vowel signs of Hindi or Thai: use "spaces" or
"chars".
"""

import re
from collections.abc import Sequence

HOWS = ("words", "chars", "spaces")
# In this order: a word with its apostrophes, one digit, one mark.
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d|[^\w\s]|_")


def split(text: str, how: str) -> list[str]:
    """Cut `text` into tokens; a blank text gives []. No token is empty or holds a blank.

    `split(join(tokens, how), how) == tokens` for all tokens that `split` gave.
    """
    if how == "words":
        return _WORD.findall(text.lower())
    if how == "chars":
        return [character for character in text if not character.isspace()]
    if how == "spaces":
        return text.split()
    raise _unknown(how)


def join(tokens: Sequence[str], how: str) -> str:
    """Put tokens together: with blanks between them, or with nothing between them for "chars"."""
    if how not in HOWS:
        raise _unknown(how)
    return ("" if how == "chars" else " ").join(tokens)


def fits(source: Sequence, target: Sequence, max_length: int | None) -> bool:
    """The length filter: neither side is blank, and neither has more than `max_length` tokens.

    BOS and EOS do not count. None sets no limit. (Rows of ids are judged alike.)
    """
    shorter, longer = sorted((len(source), len(target)))
    return shorter > 0 and (max_length is None or longer <= max_length)


def _unknown(how: str) -> ValueError:
    return ValueError(
        f'A text can be cut into "words", "chars" or "spaces"; asked for {how!r}. '
        f"Choose one of them."
    )
