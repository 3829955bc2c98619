"""Ranks under torchrun: free ports, and the same errors as under mpiexec."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from allhands import launch


def test_two_jobs_at_the_same_time_have_ports_of_their_own(tmp_path):
    """Each job waits until the other is there, inside its own process group."""
    script = tmp_path / "meet.py"
    script.write_text(
        "import os, sys\nfrom pathlib import Path\nimport torch, torch.distributed as dist\n"
        "me, other = map(Path, sys.argv[1:])\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([1 + dist.get_rank()])\n"
        "dist.all_reduce(total)\n"
        "me.touch()\n"
        "while not other.exists(): pass\n"
        "print(os.environ['MASTER_PORT'], total.item())\n"
        "dist.barrier()\ndist.destroy_process_group()\n"
    )
    names = (tmp_path / "a", tmp_path / "b"), (tmp_path / "b", tmp_path / "a")
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(launch.torchrun, script, *pair, ranks=2, time_limit_s=120) for pair in names
        ]
    (port_a, total_a), (port_b, total_b) = (job.result().text(0).split() for job in jobs)
    assert total_a == total_b == "3"
    assert port_a != port_b


def test_the_error_names_rank_and_cause_and_the_others_are_ended(tmp_path):
    script = tmp_path / "words.py"
    script.write_text(
        "import os, signal\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise KeyError('neko')\n"
        "signal.pause()\n"
    )
    with pytest.raises(launch.RanksFailed) as caught:
        launch.torchrun(script, ranks=2, time_limit_s=120)
    assert str(caught.value) == (
        "rank 1 raised KeyError: 'neko' (line 3 of words.py); rank 0 was stopped"
    )
    assert caught.value.culprits == (1,)
