"""Mixed precision on real ranks: the same weights and the same loss scale everywhere."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from allhands import launch

RANKS = 2


def test_ranks_stay_equal_and_skip_together(tmp_path):
    """Rank 1 alone sees an overflow: the mean gradient is infinite everywhere, and all skip."""
    launch.mpirun(__file__, str(tmp_path), ranks=RANKS, time_limit_s=120)
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    assert ranks[0] == ranks[1]
    grown = [4 * 2 ** (k / 1000) for k in (1, 2)]
    assert ranks[0]["scales"] == pytest.approx([2, 4, 8, 4, *grown])
    assert ranks[0]["moved"] == [True, True, True, False, True, True]
    weights = [np.load(tmp_path / f"rank{rank}.npz") for rank in range(RANKS)]
    for name in weights[0].files:
        assert weights[0][name].dtype == np.float16
        np.testing.assert_array_equal(weights[0][name], weights[1][name])


def rank_main(folder: Path) -> None:
    import chainer
    import chainermn

    from allhands import config as configs
    from allhands.data.batch import collate
    from allhands.model.seq2seq import ModelSize, Seq2Seq
    from allhands.train import parallel, precision
    from allhands.train.excepthook import end_job_on_error

    comm = chainermn.create_communicator("naive")
    end_job_on_error(comm)
    launch.expect_world(comm)
    config = configs.lab3_cpu()
    with precision.numbers(config):
        model = Seq2Seq(ModelSize(12, 10, 6, 8), seed=comm.rank)  # rank 0's weights are sent
    optimizer = chainer.optimizers.Adam(1e-2)
    precision.prepare(optimizer, config)
    optimizer = parallel.multi_node(optimizer, comm)
    optimizer.setup(model)
    optimizer.add_hook(precision.clipping(config))
    parallel.begin(optimizer)
    scales, moved = [], []
    batches = [collate([([4, 5], [7, 8])]), collate([([6, 4, 4], [9])])]
    for number in range(6):
        before = model.output.W.array.copy()
        model.cleargrads()
        precision.backward(model.loss(batches[comm.rank]), optimizer)
        if number == 3 and comm.rank == 1:
            model.output.W.grad[0, 0] = np.inf
        precision.update(optimizer)
        scales.append(optimizer._loss_scale)
        moved.append(bool((model.output.W.array != before).any()))
    np.savez(folder / f"rank{comm.rank}.npz", **{n: p.array for n, p in model.namedparams()})
    text = json.dumps({"scales": scales, "moved": moved})
    (folder / f"rank{comm.rank}.json").write_text(text)


if __name__ == "__main__":
    rank_main(Path(sys.argv[1]))
