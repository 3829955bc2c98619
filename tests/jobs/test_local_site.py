"""The local site really runs both scripts of a lab: log, parts, exit codes, nothing left."""

import re
import shlex
import shutil
import signal
import subprocess

import pytest

LAB = "lab1_seq2seq"
BOTH = pytest.mark.parametrize("kind", ["slurm", "pbs"])


@BOTH
def test_one_part(project, kind):
    ran = project.submit(LAB, "--script", kind)
    assert ran.returncode == 0, ran.stderr
    folder = str(project.only("runs/lab1_seq2seq/*").relative_to(project.root))
    command = ["train", "lab1_cpu", "--out", folder, "--resume", "--stop-after", "1500"]
    assert project.calls() == [command]
    assert "trained part 1" in ran.stdout
    log = project.only("runs/jobs/*.log").read_text()
    assert "trained part 1" in log
    assert f"ended with exit code 0. Run folder: {folder}" in log


@BOTH
def test_saved_before_the_limit_then_run_again_in_the_same_folder(project, kind):
    ran = project.submit(LAB, "--script", kind, PARTS="3")
    assert ran.returncode == 0
    calls = project.calls()
    assert len(calls) == 3
    assert calls[0] == calls[1] == calls[2], "resuming is the same command with the same folder"
    parts = re.findall(r"part (\d), on", project.only("runs/jobs/*.log").read_text())
    assert parts == ["1", "2", "3"]


@BOTH
def test_a_failed_training_is_not_run_again_and_its_code_is_submits(project, kind):
    ran = project.submit(LAB, "--script", kind, CODE="7")
    assert ran.returncode == 7
    assert len(project.calls()) == 1


def test_arguments_for_the_trainer_arrive_unchanged(project):
    given = ["--set", "note=two words, a comma and 'quotes'", "--device", "-1"]
    project.submit(LAB, "--", *given)
    assert project.calls()[0][-4:] == given


def test_a_training_that_never_ends_is_not_run_for_ever(project):
    ran = project.submit(LAB, PARTS="1000", ALLHANDS_PARTS_MAX="3")
    assert ran.returncode == 1
    assert len(project.calls()) == 3
    assert "last one allowed" in ran.stderr


def test_two_submits_in_one_second_keep_apart(project):
    project.submit(LAB)
    project.submit(LAB)
    for pattern in ("runs/jobs/*.log", "runs/jobs/*.job", "runs/lab1_seq2seq/*"):
        assert len(list(project.root.glob(pattern))) == 2


def test_what_the_trainer_sees(project):
    project.site("my_site", "ALLHANDS_SCHEDULER=none\nALLHANDS_NETWORK=ib0\nNCCL_DEBUG=WARN\n")
    ran = project.submit(LAB, "--site", "my_site", SLURM_NTASKS="64", PBS_JOBID="8.old")
    assert ran.returncode == 0
    lines = project.only("runs/lab1_seq2seq/*/environment").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["PWD"] == str(project.root)
    assert seen["OMP_NUM_THREADS"] == "1"
    assert seen["NCCL_DEBUG"] == "WARN"
    assert {seen[name + "_SOCKET_IFNAME"] for name in ("NCCL", "GLOO")} == {"ib0"}
    assert "SLURM_NTASKS" not in seen, "an outer job's variables must not leak into this one"
    assert "PBS_JOBID" not in seen


def test_the_projects_own_environment_goes_before_the_path(project):
    bin_folder = project.root / ".venv/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "activate").write_text(f"PATH={shlex.quote(str(bin_folder))}:$PATH\n")
    shutil.move(project.programs / "allhands", bin_folder / "allhands")
    project.program("allhands", "#!/bin/bash\nexit 9\n")
    assert project.submit(LAB).returncode == 0


def test_a_conda_environment_is_activated_when_the_site_names_one(project):
    hook = 'conda() { echo "conda $*" >> asked; }'
    project.program("conda", f"#!/bin/bash\necho '{hook}'\n")
    project.site(
        "my_site", "ALLHANDS_SCHEDULER=none\nALLHANDS_CONDA_ENV=course\nALLHANDS_LEVEL=gpu\n"
    )
    assert project.submit(LAB, "--site", "my_site").returncode == 0
    assert (project.root / "asked").read_text() == "conda activate course\n"
    assert project.calls()[0][1] == "lab1_gpu"


def test_modules_are_loaded_when_the_site_names_them(project):
    module = 'module() { echo "module $*" >> asked; }; export -f module; '
    project.site(
        "my_site", f"{module}\nALLHANDS_SCHEDULER=none\nALLHANDS_MODULES='cuda/12.4 nccl'\n"
    )
    assert project.submit(LAB, "--site", "my_site").returncode == 0
    assert (project.root / "asked").read_text() == "module load cuda/12.4 nccl\n"


def test_a_container_stands_before_the_command(project):
    project.program("apptainer", '#!/bin/bash\necho "$1 $2 $3" > contained; shift 3; exec "$@"\n')
    project.site(
        "my_site", 'ALLHANDS_SCHEDULER=none\nALLHANDS_CONTAINER="apptainer exec --nv course.sif"\n'
    )
    assert project.submit(LAB, "--site", "my_site").returncode == 0
    assert (project.root / "contained").read_text() == "exec --nv course.sif\n"
    assert len(project.calls()) == 1


def test_several_ranks_go_through_the_sites_launcher(project):
    for script in project.root.glob("cluster_jobs/lab1*"):
        script.write_text(script.read_text().replace("ranks_per_node=1", "ranks_per_node=2"))
    project.program("mpiexec", '#!/bin/bash\necho "$1 $2" > launched; shift 2; exec "$@"\n')
    assert project.submit(LAB).returncode == 0
    assert (project.root / "launched").read_text() == "-n 2\n"
    project.site("my_site", "ALLHANDS_SCHEDULER=none\n")
    refused = project.submit(LAB, "--site", "my_site")
    assert refused.returncode == 2
    assert "2 ranks need a launcher" in refused.stderr


@pytest.mark.parametrize(
    ("site", "sentence"),
    [
        ("ALLHANDS_MODULES=cuda\n", "Could not load the modules 'cuda'"),
        ("ALLHANDS_CONDA_ENV=course\n", "conda was not found"),
    ],
)
def test_an_environment_that_is_not_there_ends_the_job_in_a_sentence(project, site, sentence):
    project.site("my_site", "ALLHANDS_SCHEDULER=none\n" + site)
    ran = project.submit(LAB, "--site", "my_site")
    assert ran.returncode == 2
    assert sentence in ran.stderr
    assert sentence in project.only("runs/jobs/*.log").read_text()


def test_a_missing_trainer_is_a_sentence(project):
    (project.programs / "allhands").unlink()
    ran = project.submit(LAB)
    assert ran.returncode == 2
    assert "'allhands' was not found. Make the environment first" in ran.stderr


@BOTH
def test_a_script_also_runs_by_hand(project, kind):
    script = f"cluster_jobs/{LAB}.{kind}"
    environment = project.environment(ALLHANDS_LEVEL="cpu")
    ran = subprocess.run(["bash", script], cwd=project.root, env=environment, timeout=60)
    assert ran.returncode == 0
    assert project.only("runs/*/*/calls").read_text().startswith("train|lab1_cpu|")


def test_a_script_run_by_hand_says_how_to_go_on(project):
    script = f"cluster_jobs/{LAB}.slurm"
    environment = project.environment(ALLHANDS_LEVEL="cpu", PARTS="2")
    where = {"cwd": project.root, "timeout": 60, "capture_output": True, "text": True}
    first = subprocess.run(["bash", script], env=environment, **where)
    assert first.returncode == 85
    advice = first.stderr.rpartition("To go on: ")[2]
    second = subprocess.run(advice, shell=True, env=environment, **where)
    assert second.returncode == 0
    assert len(project.only("runs/*/*/calls").read_text().splitlines()) == 2


# ---- nothing is left running ----

STUBBORN = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
with open("ready.part", "w") as out:
    out.write(f"{os.getpid()} {child.pid} {os.getppid()}")
os.rename("ready.part", "ready")
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_running_when_submit_is_interrupted(project, processes, number):
    """Gone: a trainer that ignores SIGTERM, its child in an own session, and the job script."""
    project.python_program("allhands", STUBBORN)
    environment = project.environment(ALLHANDS_GRACE_S="0.3")
    with subprocess.Popen(
        project.command(LAB), env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        pids = [int(pid) for pid in project.wait_for("ready", running).split()]
        assert all(map(processes.is_running, pids))
        running.send_signal(number)
        try:
            output, _ = running.communicate(timeout=60)
        finally:
            left = processes.end(pids)
    assert left == []
    assert running.returncode == 128 + number
    assert "Interrupted: the job was ended" in output


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
def test_a_lab_of_two_nodes_starts_two_ranks_and_says_how_many(project, kind):
    """The launcher of the site starts them, and each can check the size of its world."""
    project.program("mpiexec", '#!/bin/bash\necho "$1 $2" > launched; shift 2; exec "$@"\n')
    project.program("python", '#!/bin/bash\necho "$ALLHANDS_RANKS $*" > called\n')
    ran = project.submit("lab4_mgwfbp", "--script", kind)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (project.root / "launched").read_text() == "-n 2\n"
    called = (project.root / "called").read_text()
    assert called.startswith("2 -m allhands.train.measure_link --out runs/lab4_mgwfbp/")


@pytest.mark.parametrize(
    ("lines", "devices"),
    [
        ("ALLHANDS_NETWORK=lo\n", "lo"),
        ("ALLHANDS_NETWORK=lo\nUCX_NET_DEVICES=mlx5_0:1\n", "mlx5_0:1"),  # the site knows better
        ("ALLHANDS_NETWORK=lo,eth9\n", None),  # not one interface
        ("", None),
    ],
)
def test_ranks_that_send_through_ucx_keep_to_the_network_of_the_site(project, lines, devices):
    """Else UCX shares large messages out over all networks, and a measured link is none of them."""
    project.site("my_site", "ALLHANDS_SCHEDULER=none\n" + lines)
    assert project.submit(LAB, "--site", "my_site").returncode == 0
    told = project.only("runs/lab1_seq2seq/*/environment").read_text().splitlines()
    found = [line.partition("=")[2] for line in told if line.startswith("UCX_NET_DEVICES=")]
    assert found == ([devices] if devices else [])


@pytest.mark.parametrize(
    ("said", "site_line", "threads"),
    [
        ("4", "", "1"),  # PBS said it: the cores of the chunk, for all its ranks
        ("2", "", "2"),  # -l select=...:ompthreads=2, or the user
        ("4", "OMP_NUM_THREADS=4\n", "4"),  # the site wants it so
    ],
)
def test_ranks_do_not_take_the_threads_that_pbs_gives_them_by_itself(
    project, said, site_line, threads
):
    project.site("my_site", "ALLHANDS_SCHEDULER=pbs\n" + site_line)
    told = {"PBS_JOBID": "7.server", "NCPUS": "4", "OMP_NUM_THREADS": said}
    ran = subprocess.run(
        ["bash", f"cluster_jobs/{LAB}.pbs"],
        env=project.environment(ALLHANDS_SITE="my_site", **told),
        cwd=project.root,
        timeout=60,
    )
    assert ran.returncode == 0
    lines = project.only("runs/*/*/environment").read_text().splitlines()
    assert f"OMP_NUM_THREADS={threads}" in lines
