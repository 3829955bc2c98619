"""`allhands check`: healthy programs, what is read and how, places, exit codes, both outputs."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

import allhands
from allhands import migrate
from allhands.cli import app
from allhands.migrate import RULES, UnreadableScript, check, check_text, report
from allhands.migrate.rule import SEVERITIES

SCRIPTS = Path(__file__).parent / "migrate_scripts"
PACKAGE = Path(allhands.__file__).parent
NOTEBOOKS = PACKAGE.parents[1] / "notebooks" / "src"
HANGS = """\
import chainermn
comm = chainermn.create_communicator("naive")
if comm.rank == 0:
    comm.bcast_obj(1)
"""
# What the check says about the labs' own programs, and each is meant: the labs teach with it.
MEANT = {
    ("bug2_singlegpu/hang.py", "collective-on-some-ranks"),
    ("hack_owncode/in_haste.py", "collective-on-some-ranks"),
    ("hack_owncode/in_haste.py", "set-epoch-missing"),
    ("hack_owncode/in_haste.py", "files-of-all-ranks"),
    ("hack_owncode/in_haste.py", "device-fixed"),
    ("allhands/train/faults/bug1_errorcount_logs/device.py", "device-by-world-rank"),
}


def rules_of(answer, *severities) -> set[str]:
    return {each.rule.rule_id for each in answer.of(*(severities or SEVERITIES))}


def command(*words):
    return CliRunner().invoke(app, ["check", *map(str, words)])


# Healthy programs


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_healthy_script_of_a_public_shape_is_left_alone(path):
    answer = check(path)
    assert rules_of(answer, "sure", "likely") == set()
    assert answer.exit_code == 0


def test_of_the_labs_own_programs_only_the_planted_faults_are_named():
    found = set()
    for path in [*(PACKAGE / "train").rglob("*.py"), *PACKAGE.parent.glob("*_*/*.py")]:
        for each in check(path).of("sure", "likely"):
            found.add((path.relative_to(PACKAGE.parent).as_posix(), each.rule.rule_id))
    assert found == MEANT


def test_what_both_branches_call_meets():
    both = HANGS + "else:\n    comm.bcast_obj(None)\n"
    assert rules_of(check_text(both), "sure") == set()
    assert rules_of(check_text(HANGS), "sure") == {"collective-on-some-ranks"}


@pytest.mark.parametrize(
    "line",
    [
        "if comm.size > 1:",
        "if comm.rank >= 0:",
        "if rank_of_matrix > 2:",
        "if comm.rank != -1:",
        "for rank in range(comm.size):",
    ],
)
def test_a_condition_that_is_the_same_on_all_ranks_is_none(line):
    assert rules_of(check_text(HANGS.replace("if comm.rank == 0:", line)), "sure") == set()


@pytest.mark.parametrize(
    "condition",
    [
        "not comm.rank",
        "comm.rank < 1 or True",
        "0 == comm.rank",
        "comm.mpi_comm.Get_rank() == 0",
        "is_first",
        "first()",
        "args.verbose and comm.rank == 0",
        "comm.rank in (0, 1)",
    ],
)
def test_a_rank_is_known_by_what_it_is_made_from(condition):
    before = "is_first = comm.rank == 0\ndef first():\n    return comm.rank == 0\n"
    text = HANGS.replace("if comm.rank == 0", f"{before}if {condition}")
    assert rules_of(check_text(text), "sure") == {"collective-on-some-ranks"}


def test_a_function_carries_the_condition_of_its_call():
    text = HANGS.replace("    comm.bcast_obj(1)", "    tell()")
    text = "def tell():\n    comm.bcast_obj(1)\n" + text
    found = check_text(text).of("sure")
    assert [each.line for each in found] == [2]
    assert "line 5: comm.rank == 0" in found[0].detail


# What is read, and how


def test_a_serial_program_gets_the_edits_in_their_order():
    text = """\
import torch
device = torch.device("cuda")
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(range(4), shuffle=True)
for batch in loader:
    loss = model(batch)
    loss.backward()
    optimizer.step()
    print(loss)
with torch.no_grad():
    model(batch)
"""
    answer = check_text(text)
    assert [(each.rule.rule_id, each.line) for each in answer.findings] == [
        ("edit-1-begin", 2),
        ("edit-2-device", 2),
        ("edit-3-data", 5),
        ("edit-4-optimizer", 4),
        ("edit-5-evaluate", 11),
        ("edit-6-output", 10),
    ]
    assert answer.exit_code == 0
    assert "measure this program on one device" in report(answer)


def test_a_notebook_is_named_by_cell_and_line(tmp_path):
    cells = [
        nbformat.v4.new_code_cell("%matplotlib inline\n!ls\nimport chainermn"),
        nbformat.v4.new_markdown_cell("text"),
        nbformat.v4.new_code_cell("%%bash\nif comm.rank == 0"),
        nbformat.v4.new_code_cell("this is no Python"),
        nbformat.v4.new_code_cell(HANGS.replace("import chainermn\n", "")),
    ]
    path = tmp_path / "mine.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    found = check(path).of("sure")
    assert [each.place for each in found] == ["cell 4:3"]
    assert "cell 4:3: comm.bcast_obj(1)" in report(check(path))


def test_a_folder_is_one_program_without_its_environments(tmp_path):
    (tmp_path / "main.py").write_text((SCRIPTS / "base_ddp.py").read_text().replace(
        "    sampler.set_epoch(epoch)\n", "    begin(sampler, epoch)\n"
    ))  # fmt: skip
    (tmp_path / "steps.py").write_text("def begin(sampler, n):\n    sampler.set_epoch(n)\n")
    for skipped in (".venv/lib", "build", "mine/inside"):
        (tmp_path / skipped).mkdir(parents=True)
        (tmp_path / skipped / "hangs.py").write_text(HANGS)
    (tmp_path / "mine" / "pyvenv.cfg").touch()
    answer = check(tmp_path)
    assert [path.name for path in answer.files] == ["main.py", "steps.py"]
    assert rules_of(answer) == set()
    assert rules_of(check(tmp_path / "main.py")) == {"set-epoch-missing"}


def test_a_framework_that_manages_ranks_is_trusted_with_what_seems_missing():
    text = (SCRIPTS / "base_ddp.py").read_text().replace("    sampler.set_epoch(epoch)\n", "")
    assert rules_of(check_text(text)) == {"set-epoch-missing"}
    assert rules_of(check_text("import lightning\n" + text)) == set()


def test_a_comment_silences_one_rule_of_one_line():
    silent = HANGS.replace("(1)", "(1)  # allhands: ok collective-on-some-ranks")
    assert check_text(silent).silenced == 1
    above = HANGS.replace("    comm.b", "    # allhands: ok collective-on-some-ranks\n    comm.b")
    assert check_text(above).silenced == 1
    other = HANGS.replace("(1)", "(1)  # allhands: ok fixed-port")
    assert rules_of(check_text(other), "sure") == {"collective-on-some-ranks"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"print 'hello'\n", "Python 2"),
        (b"def f(:\n", "line 1"),
        (b"# coding: klingon\nx = 1\n", "encoding"),
        (b"x = '\xff'\n", "UTF-8"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 5000 + b")" * 5000, "odd.py"),
        (b"x = " + b"-" * 50000 + b"1\n", "cannot be read"),
    ],
)
def test_what_is_no_python_is_a_sentence_with_exit_code_2(tmp_path, data, said):
    path = tmp_path / "odd.py"
    path.write_bytes(data)
    done = command(path)
    assert done.exit_code == 2
    assert said in done.output
    assert str(path) in done.output.replace("\n", "")
    assert "Traceback" not in done.output


def test_other_encodings_line_ends_and_marks_are_read(tmp_path):
    for i, data in enumerate([
        HANGS.encode("utf-8-sig"),
        HANGS.replace("\n", "\r\n").encode(),
        ("# coding: euc-jp\n# 並列\n" + HANGS).encode("euc-jp"),
        ("# coding: latin-1\n# é\n" + HANGS).encode("latin-1"),
    ]):  # fmt: skip
        path = tmp_path / f"{i}.py"
        path.write_bytes(data)
        assert [each.code for each in check(path).of("sure")] == ["comm.bcast_obj(1)"]


def test_files_that_are_not_there_or_hold_nothing_are_sentences(tmp_path):
    with pytest.raises(UnreadableScript, match="There is no file"):
        check(tmp_path / "gone.py")
    with pytest.raises(UnreadableScript, match=r"holds no \.py"):
        check(tmp_path)
    (tmp_path / "mine.ipynb").write_text("[]")
    assert command(tmp_path / "mine.ipynb").exit_code == 2
    assert command(tmp_path / "gone.py").exit_code == 2


# What is said


def test_the_command_says_where_why_and_what_to_do_and_exits_with_1(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HANGS)
    done = command(path)
    assert done.exit_code == 1
    for said in ("line 4: comm.bcast_obj(1)", "Cure:", "collective-on-some-ranks", "1 sure"):
        assert said in done.output
    found = json.loads(command(path, "--json").output)
    assert found["counts"]["sure"] == 1
    assert found["parallel_by"] == ["chainer"]
    first = found["findings"][0]
    assert (first["place"], first["rule"]) == ("4", "collective-on-some-ranks")
    assert all(first[key] for key in ("why", "cure", "source"))


def test_one_bad_file_of_a_folder_is_named_and_the_rest_is_checked(tmp_path):
    (tmp_path / "good.py").write_text(HANGS)
    (tmp_path / "bad.py").write_text("def f(:")
    done = command(tmp_path)
    assert done.exit_code == 1
    assert "bad.py" in done.output
    assert "comm.bcast_obj(1)" in done.output


def test_rules_are_whole_and_no_two_have_one_name():
    assert len({rule.rule_id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.severity in SEVERITIES
        assert all((rule.title, rule.cure, rule.source))
        assert rule.why.endswith(".")
        labs = re.findall(r"notebook (\w+)", rule.source)
        assert all((NOTEBOOKS / f"{lab}.py").exists() for lab in labs)


def test_nothing_of_the_script_runs(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"open({str(tmp_path / 'made')!r}, 'w')\nraise SystemExit(3)\n")
    assert migrate.check(path).exit_code == 0
    assert not (tmp_path / "made").exists()
