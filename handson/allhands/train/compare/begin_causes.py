"""Why do N ranks begin otherwise than one? Rules, as data, for the checks of `begin`."""

from allhands.train.compare.cause import Cause, otherwise

BEGIN = (
    Cause(
        "world",
        "wrong-world",
        otherwise,
        "the ranks did not find each other: mpiexec and mpi4py belong to two different MPIs",
        "Run `allhands doctor`, and use the mpiexec of the environment that holds mpi4py.",
    ),
    Cause(
        "same",
        "wrong-speaker",
        lambda f: bool(f["speakers"]),
        "which rank prints and writes files is not decided by `comm.rank == 0`",
        "Let rank 0 of the whole world speak, and no other (`intra_rank` counts within a node).",
    ),
    Cause(
        "same",
        "rank-local-vocabulary",
        lambda f: f["between_ranks"] and f["vocabulary"],
        "each rank made its vocabulary from its own share of the data, so one number means "
        "different words",
        "Make the vocabulary from the whole training set on every rank, before the data is dealt "
        "out; or make it on rank 0 and hand it to all (bcast_obj).",
    ),
    Cause(
        "same",
        "rank-local-size",
        lambda f: f["between_ranks"] and f["shapes"],
        "a size of the model depends on the rank: on its share of the data, or on its number",
        "Take all sizes from the configuration or from the whole training set.",
    ),
    Cause(
        "same",
        "rank-local-setting",
        lambda f: f["between_ranks"],
        "a setting depends on the rank: on its share of the data, or on its number",
        "Set it to one value on all ranks, or take rank 0's (bcast_obj).",
    ),
    Cause(
        "same",
        "rate-not-scaled",
        lambda f: f["rate"] and f["rate_too_small"],
        "the learning rate of the ranks is smaller than that of the run alone, which has the rate "
        "for a batch of all ranks' samples: the ranks' is not scaled",
        "Multiply the learning rate by the factor that the number of ranks and the kind of scaling "
        "give, on every rank.",
    ),
    Cause(
        "same",
        "rate-scaled",
        lambda f: f["rate"],
        "the learning rate is scaled with the number of ranks, and the run alone, which makes the "
        "same steps with the same samples, has another",
        "Compare without scaling, and scale afterwards: linear scaling changes the training on "
        "purpose.",
    ),
    Cause(
        "same",
        "setting-by-size",
        otherwise,
        "a setting depends on the number of ranks",
        "Give N ranks and one rank the same setting.",
    ),
    Cause(
        "initial",
        "not-yet-initialised",
        lambda f: f["lazy"] and f["between_ranks"],
        "some parameters had no values when rank 0 handed its parameters to the others (a layer "
        "made with None as its input size gets them in the first forward pass): they were skipped, "
        "and each rank drew its own",
        "Give the layers their input sizes, or run one forward pass on every rank before the "
        "broadcast.",
    ),
    Cause(
        "initial",
        "changed-after-broadcast",
        lambda f: f["between_ranks"] and f["changed"],
        "after rank 0 had handed its parameters to all, a rank changed its own: it loaded a "
        "snapshot, or drew them anew",
        "Load on rank 0 before the broadcast; or load the same snapshot on every rank.",
    ),
    Cause(
        "initial",
        "no-broadcast",
        lambda f: f["between_ranks"],
        "each rank drew its own parameters from its own random numbers, and nobody handed one set "
        "to all before the first step",
        "Use create_multi_node_optimizer, whose first update does it; or call comm.bcast_data("
        "model) before the first step.",
    ),
    Cause(
        "initial",
        "updated-before-broadcast",
        lambda f: f["state_differs"],
        "the optimizer made an update of its own before the broadcast: the broadcast mends the "
        "parameters, but not what the optimizer keeps (Adam's m and v)",
        "Make no update before create_multi_node_optimizer and its broadcast; make the optimizer "
        "anew after them.",
    ),
    Cause(
        "initial",
        "seed-by-size",
        otherwise,
        "all ranks agree, but the run alone starts elsewhere: the seed or the order of drawing "
        "depends on the number of ranks",
        "Seed with one number that does not depend on comm.size, right before the model is made.",
    ),
    Cause(
        "samples",
        "no-scatter",
        lambda f: f["ranks"] > 1 and f["all_on_all"],
        "the training set was not dealt out: every rank trains on all samples",
        "Give each rank its share: chainermn.scatter_dataset, or order[comm.rank::comm.size].",
    ),
    Cause(
        "samples",
        "one-shard",
        lambda f: f["ranks"] > 1 and f["same_on_all"],
        "all ranks train on the same share, so the other samples never come",
        "Take the share of this rank: comm.rank must decide which.",
    ),
    Cause(
        "samples",
        "different-shuffles",
        lambda f: f["ranks"] > 1 and f["n_missing"] > 0 and f["n_repeated"] > 0,
        "the shares overlap and leave samples out: each rank shuffled with another seed before it "
        "took its share",
        "Shuffle with one seed on all ranks, then take the share.",
    ),
    Cause(
        "samples",
        "padded-shards",
        lambda f: f["n_repeated"] > 0,
        "samples were repeated to make the shares equal (scatter_dataset does it unless told "
        "otherwise), or a share is a slice that is too long",
        "Call scatter_dataset(..., force_equal_length=False), and weight the loss by the size of "
        "the batch.",
    ),
    Cause(
        "samples",
        "dropped-samples",
        lambda f: f["n_missing"] > 0,
        "the samples that fill no whole share or batch are left out",
        "Let the last share or batch be smaller, and weight the loss by its size.",
    ),
    Cause(
        "samples",
        "unequal-steps",
        lambda f: f["unequal_steps"],
        "the shares are of different sizes, so one rank makes more steps than the others: in the "
        "real run it waits in its last all-reduce for ever",
        "Make the number of steps of the largest share on all ranks, with smaller batches on the "
        "others.",
    ),
    Cause(
        "samples",
        "no-shuffle",
        lambda f: f["in_order"] or f["contiguous"],
        "the samples were not shuffled before they were dealt out, so each rank learns from one "
        "stretch of the data, in the order of the file",
        "Shuffle all numbers with one seed on all ranks first: scatter_dataset(..., shuffle=True, "
        "seed=0).",
    ),
    Cause(
        "samples",
        "same-order",
        otherwise,
        "the order is the same in every epoch",
        "Shuffle anew in each epoch, with a seed that depends on the epoch.",
    ),
)
