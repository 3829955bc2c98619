"""Labels: the same ranks say the same, whatever launcher wrote its label before their lines."""

import pytest

from allhands import triage
from allhands.triage.labels import choose

RANKS = 12
RAISED = (1, 2, 5, 11)


def lines_of(rank: int) -> list[str]:
    """What one rank writes; its message and a value in brackets look like labels."""
    said = [f"start {rank}/{RANKS}", f"epoch 1 step {10 + rank} loss 0.5", "  indented [3/4]"]
    if rank in RAISED:
        said += [
            "Traceback (most recent call last):",
            '  File "/scratch/kelp/halo.py", line 41, in <module>',
            "    main()",
            '  File "/scratch/kelp/halo.py", line 12, in main',
            "    return np.pad(u, k)[1:-1]",
            f"RuntimeError: [{rank}]: halo of rank {rank} is wrong",
        ]
    return said


def woven() -> list[tuple[int, str]]:
    """All ranks' lines, one of each rank in turn."""
    every = [lines_of(rank) for rank in range(RANKS)]
    most = max(map(len, every))
    return [(r, every[r][i]) for i in range(most) for r in range(RANKS) if i < len(every[r])]


FORMATS = {
    "openmpi 4 tag": ("[1,{r}]<stderr>:", "openmpi"),
    "openmpi 5 tag": ("[1,{r}]<stderr>: ", "openmpi"),
    "openmpi 5 tag-detailed": ("[1,{r}][n1:2{r}1]<stderr>: ", "openmpi"),
    "openmpi 5 tag-fullname": ("[prterun-n1-2011@1,{r}]<stderr>: ", "openmpi"),
    "openmpi 5 rank": ("[{r}]<stderr>: ", "openmpi"),
    "openmpi 5 time": ("[Sun Nov 29 16:48:56 2026][1,{r}]<stderr>: ", "openmpi"),
    "horovodrun gloo": ("Fri Sep 25 16:52:53 2020[{r}]<stderr>:", "horovodrun"),
    "mpich": ("[{r}] ", "mpich"),
    "srun": ("{r}: ", "srun"),
    "srun right-aligned": ("{r:2d}: ", "srun"),
    "torchrun": ("[rank{r}]: ", "torchrun"),
    "torchrun tee": ("[default{r}]:[rank{r}]: ", "torchrun"),
    "srun, torchrun inside": ("{n}: [rank{r}]: ", "srun"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_ranks_and_message(name, tmp_path):
    label, family = FORMATS[name]
    log = tmp_path / "job.log"
    written = [label.format(r=rank, n=rank // 6) + text for rank, text in woven()]
    log.write_text("\n".join(written) + "\n")
    answer = triage.triage([log])
    assert answer.launcher.startswith(family)
    assert answer.world_size == RANKS
    assert answer.root_ranks == RAISED
    assert answer.duplicate_count == len(RAISED)
    assert answer.message == "[1]: halo of rank 1 is wrong"
    assert answer.root_frame == "/scratch/kelp/halo.py:12 in main"
    assert answer.silent_ranks == ()


def test_mpich_labels_of_writes_are_no_text(tmp_path):
    """With unbuffered output MPICH labels every write, and the line's end comes by itself."""
    log = tmp_path / "job.log"
    written = []
    for rank, text in woven():
        name, colon, rest = text.partition(": ")
        if name == "RuntimeError":
            written.append(f"[{rank}] {name}[{rank}] {colon}[{rank}] {rest}[{(rank + 1) % 12}] ")
            written.append(f"[{rank}] ")
        else:
            written += [f"[{rank}] {text}[{rank}] ", f"[{rank}] "]
    log.write_text("\n".join(written) + "\n")
    answer = triage.triage([log])
    assert answer.root_ranks == RAISED
    assert answer.message == "[1]: halo of rank 1 is wrong"


def test_one_file_a_rank(tmp_path):
    for rank in range(3):
        folder = tmp_path / f"rank.{rank}"
        folder.mkdir()
        (folder / "stderr").write_text("\n".join(lines_of(rank)) + "\n")
    answer = triage.triage(sorted(tmp_path.glob("*/stderr")))
    assert answer.world_size == RANKS
    assert answer.root_ranks == (1, 2)
    assert answer.duplicate_count == 2


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [1]: params[0] in this process with sizes [20] appears not to match",
        "[proxy:0:1@c08] HYD_pmcd_pmip_control_cmd_cb (proxy.c:480): assert failed",
        "[mpiexec@c07] control_cb (pm/pmiserv/pmiserv_cb.c:208): assert failed",
        "return np.pad(u, k)[1:-1]",
        "sample [3/4] of epoch 2",
    ],
)
def test_what_only_looks_like_a_label_is_text(line):
    labels = choose([line] * 3 + ["plain text"] * 7)
    (found,) = labels.split(1, line)
    assert found.rank is None
    assert found.text == line


def test_a_label_in_the_middle_of_a_line_begins_another_rank():
    labels = choose(["[1,0]<stdout>:a", "[1,1]<stdout>:b"])
    found = labels.split(1, "[1,3]<stdout>:epoch 3 starts[1,2]<stdout>:epoch 4 starts")
    assert [(line.rank, line.text) for line in found] == [
        (3, "epoch 3 starts"),
        (2, "epoch 4 starts"),
    ]
    (glued,) = labels.split(2, "[1,0]<stderr>:operations.cc[1,0]<stderr>::588] stalled")
    assert glued.text == "operations.cc:588] stalled"


def test_torch_behind_a_progress_bar():
    labels = choose(["[rank0]: a", "[rank1]: b"])
    found = labels.split(1, " 41/400 [00:31<04:31, 1.3it/s][rank5]:[E602 01:02:03 x.cpp:1] gone")
    assert [line.rank for line in found] == [None, 5]
    assert found[1].text == "[E602 01:02:03 x.cpp:1] gone"


@pytest.mark.parametrize(
    "before", ["[{rank}] rank 0: ", "rank {rank}: ", "[1,{rank}]<stderr>:[rank 0]: "]
)
def test_the_programs_own_name_of_a_rank_is_no_text(before, tmp_path):
    """Behind a launcher's label the label counts: the program may name a rank of its node."""
    log = tmp_path / "job.log"
    written = [before.format(rank=rank) + text for rank, text in woven()]
    log.write_text("\n".join(written) + "\n")
    answer = triage.triage([log])
    assert (answer.root_error_class, answer.root_ranks) == ("RuntimeError", RAISED)
    assert answer.duplicate_count == len(RAISED)
