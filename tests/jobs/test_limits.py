"""More than a site or a queue has is refused in a sentence, before anything is written.

Where the scheduler's own commands are there, they are asked; here they are stand-ins.
"""

import re

import pytest

LAB = "lab1_seq2seq"
PLACE = {"ALLHANDS_QUEUE": "long", "ALLHANDS_ACCOUNT": "gr01"}
SMALL = """
ALLHANDS_SCHEDULER=slurm
ALLHANDS_LEVEL=${ALLHANDS_LEVEL:-gpu}
ALLHANDS_GPU_OPTION="--gres=gpu:{gpus_per_node}"
ALLHANDS_GPUS_PER_NODE=2
ALLHANDS_NODES_MAX=4
ALLHANDS_TIME_MAX=02:00:00
"""


@pytest.mark.parametrize(
    ("words", "level", "sentence"),
    [
        ("--ranks 4", "gpu", r"4 ranks on a node want 4 GPUs.*has 2.*--nodes 2 --ranks 4"),
        ("--ranks 3", "gpu", r"has 2.*--nodes 3 --ranks 3"),
        ("--ranks 4", "cpu", None),
        ("--nodes 2 --ranks 4", "gpu", None),
        ("--nodes 5", "gpu", r"5 nodes were asked for; site 'my_site' gives at most 4"),
        ("--nodes 4", "gpu", None),
        (
            "--time 02:00:01",
            "gpu",
            r"02:00:01 was asked for; site 'my_site' gives at most 02:00:00",
        ),
        ("--time 02:00:00", "gpu", None),
    ],
)
def test_more_than_the_site_has_is_refused(project, words, level, sentence):
    project.site("my_site", SMALL)
    lab = ["lab2_dataparallel", "--site", "my_site", "--dry-run", *words.split()]
    ran = project.submit(*lab, ALLHANDS_LEVEL=level)
    if sentence is None:
        assert ran.returncode == 0, ran.stderr
    else:
        assert ran.returncode == 2
        assert re.search(sentence, ran.stderr), ran.stderr


SINFO = "#!/bin/bash\n[ \"$*\" = '-a -h -o %R|%l|%D' ] || exit 1\ncat <<END\n{}\nEND\n"
PARTITIONS = "long|infinite|3\nlong|infinite|5\nshort|1:00:00|2\ndays|2-00:00:00|2"


@pytest.mark.parametrize(
    ("queue", "words", "sentence"),
    [
        ("lang", "", r"has no queue 'lang'. Known: days, long, short"),
        ("long,lang", "", r"has no queue 'lang'"),
        ("long,short", "", None),
        ("long", "--nodes 8 --time 99:00:00", None),
        ("long", "--nodes 9", r"9 nodes were asked for; queue 'long' has 8"),
        ("short", "--time 01:00:01", r"queue 'short' gives at most 01:00:00"),
        ("days", "--time 48:00:01", r"queue 'days' gives at most 48:00:00"),
        ("days", "--time 48:00:00", None),
    ],
)
def test_slurms_own_partitions_decide(project, queue, words, sentence):
    """Where `sinfo` answers: a partition may stand on several lines, one for each kind of nodes."""
    project.program("sinfo", SINFO.format(PARTITIONS))
    lab = ["lab4_mgwfbp", "--site", "slurm-generic", "--dry-run", *words.split()]
    ran = project.submit(*lab, ALLHANDS_QUEUE=queue, ALLHANDS_ACCOUNT="a")
    assert ran.returncode == (2 if sentence else 0), ran.stderr
    assert re.search(sentence or "", ran.stderr), ran.stderr


def test_no_answer_of_the_scheduler_is_no_refusal_and_it_can_be_left_alone(project):
    lab = ["lab4_mgwfbp", "--site", "slurm-generic", "--dry-run"]
    project.program(
        "sinfo", "#!/bin/bash\necho 'slurm_load_partitions: Unable to contact' >&2; exit 1"
    )
    assert project.submit(*lab, **PLACE).returncode == 0
    project.program("sinfo", SINFO.format("short|1:00:00|2"))
    assert project.submit(*lab, **PLACE).returncode == 2
    assert project.submit(*lab, ALLHANDS_ASK="no", **PLACE).returncode == 0


QSTAT = """#!/bin/bash
case "$*" in
    -Q) echo 'Queue              Max   Tot Ena'; echo '---------------- ----- ----- ---'
        echo 'workq                0     0 yes'; echo 'long                 0     0 yes' ;;
    '-Q -f long') echo 'Queue: long'; echo '    resources_max.nodect = 2'
        echo '    resources_max.walltime = 12:00:00' ;;
    '-Q -f workq') echo 'Queue: workq' ;;
    *) exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("queue", "words", "sentence"),
    [
        ("quick", "", r"has no queue 'quick'. Known: long, workq"),
        ("workq", "--nodes 8 --time 99:00:00", None),
        ("workq@server", "", None),
        ("long", "--nodes 3", r"queue 'long' has 2"),
        ("long", "--time 12:00:01", r"queue 'long' gives at most 12:00:00"),
        ("long", "--time 12:00:00", None),
    ],
)
def test_the_queues_of_pbs_decide(project, queue, words, sentence):
    project.program("qstat", QSTAT)
    lab = ["lab4_mgwfbp", "--site", "pbs-generic", "--dry-run", *words.split()]
    ran = project.submit(*lab, ALLHANDS_QUEUE=queue, ALLHANDS_ACCOUNT="a")
    assert ran.returncode == (2 if sentence else 0), ran.stderr
    assert re.search(sentence or "", ran.stderr), ran.stderr


@pytest.mark.parametrize(("account", "code"), [("physics", 0), ("chemistry", 2)])
def test_an_account_is_looked_up_where_the_site_says_how(project, account, code):
    project.program("mine", "#!/bin/bash\necho biology; echo physics\n")
    project.site(
        "my_site",
        'ALLHANDS_SCHEDULER=pbs\nALLHANDS_ACCOUNT_OPTION="-A {}"\nALLHANDS_ACCOUNTS=mine\n'
        "ALLHANDS_ACCOUNT=$ALLHANDS_ACCOUNT\n",
    )
    ran = project.submit(LAB, "--site", "my_site", "--dry-run", ALLHANDS_ACCOUNT=account)
    assert ran.returncode == code
    assert ("is not one of yours. Known: biology, physics." in ran.stderr) == (code == 2)
