"""What is the usual cause of a difference between N ranks and one? Rules, as data.

A check that fails has facts (a dict; `compare_checks` makes it). The first rule of that check whose
`when` holds names the cause. A new mistake is a new rule. N is the number of ranks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Facts = Mapping[str, object]


@dataclass(frozen=True)
class Cause:
    """check: whose failure it explains. id: its short name. cause, remedy: sentences."""

    check: str
    id: str
    when: Callable[[Facts], bool]
    cause: str
    remedy: str


def otherwise(facts: Facts) -> bool:
    return True


def name(check: str, facts: Facts) -> Cause:
    """Return the first cause that fits a failed check; the last of each check always does."""
    return next(cause for cause in CAUSES if cause.check in (check, ANY) and cause.when(facts))


ANY = "any check"
CAUSES = (
    # Jobs that did not end by themselves. `ending`, `stage`, `waiting` (ranks that wait in it).
    Cause(
        ANY,
        "rank-0-hang",
        lambda f: f.get("ending") == "hang" and f["stage"] == "evaluate" and f["waiting"] == [0],
        "the evaluation runs on rank 0 only, and there is a call in it that waits for all ranks",
        "Let every rank evaluate its part; only printing belongs to rank 0.",
    ),
    Cause(
        ANY,
        "rank-condition-hang",
        lambda f: f.get("ending") == "hang",
        "a call that all ranks must make stands where only some of them come: in `if comm.rank == "
        "0`, or in a loop that is longer on one rank",
        "Move the call out of the condition, so that all ranks make the same calls in one order.",
    ),
    Cause(
        ANY,
        "too-slow",
        lambda f: f.get("ending") == "time",
        "the ranks did not wait for each other, so the work takes longer than the time limit",
        "Give a longer --time-limit, fewer --steps, or a smaller problem.",
    ),
    Cause(
        ANY,
        "different-calls",
        lambda f: f.get("ending") == "mpi",
        "the ranks were in different calls of the communicator, or gave arrays of different sizes "
        "(a layer that has values on some ranks only is enough)",
        "Make the same calls in one order on all ranks, with arrays of one size and type.",
    ),
    Cause(
        ANY,
        "rank-lost",
        lambda f: f.get("ending") == "failed",
        "a rank ended before the comparison did",
        "Mend what the sentence above says; run the program alone on one rank first.",
    ),
    Cause(
        "world",
        "wrong-world",
        otherwise,
        "the ranks did not find each other: mpiexec and mpi4py belong to two different MPIs",
        "Run `allhands doctor`, and use the mpiexec of the environment that holds mpi4py.",
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
        "otherwise)",
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
    Cause(
        "gradient",
        "random-loss",
        lambda f: f["random"],
        "the loss is random: the run alone does not get its own gradient a second time. Dropout "
        "draws another mask each time",
        "Turn dropout off for the comparison (ratio 0).",
    ),
    Cause(
        "gradient",
        "not-exchanged",
        lambda f: f["own"] and f["between_ranks"],
        "the gradients are not exchanged: each rank updates with its own. The optimizer is a plain "
        "one",
        "Wrap it: chainermn.create_multi_node_optimizer(optimizer, comm), and call its update().",
    ),
    Cause(
        "gradient",
        "summed",
        lambda f: (
            f["ratio_is_n"] or ("used of sum" in f["fits"] and "used of mean" not in f["fits"])
        ),
        "the ranks' gradients are summed, not averaged: each is the mean over a batch already",
        "Divide the sum by comm.size.",
    ),
    Cause(
        "gradient",
        "divided-twice",
        lambda f: f["ratio_is_1_over_n"],
        "the gradient is N times too small: it is divided by the number of ranks twice",
        "Average once: multi_node_mean_grad does it already.",
    ),
    Cause(
        "gradient",
        "clipped-before",
        lambda f: "mean of used" in f["fits"] and "used of mean" not in f["fits"],
        "each rank clips (or otherwise changes) its own gradient before the all-reduce, so what is "
        "averaged are clipped gradients",
        "Add GradientClipping as a hook of the optimizer that create_multi_node_optimizer wraps: "
        "it then comes after the all-reduce.",
    ),
    Cause(
        "gradient",
        "unequal-weights",
        lambda f: "used of mean" in f["fits"],
        "the ranks' batches are of different sizes, but each counts the same in the average",
        "Multiply the loss by (samples here) * comm.size / (samples on all ranks).",
    ),
    Cause(
        "gradient",
        "ranks-disagree",
        lambda f: f["between_ranks"],
        "the ranks update with different gradients: something changes them after the all-reduce",
        "Change gradients in the same way on all ranks.",
    ),
    Cause(
        "gradient",
        "other-gradient",
        otherwise,
        "the mean of the ranks' losses is not the loss of all their samples in one batch: a "
        "different normalisation, or batch normalisation over one rank's batch",
        "Compare the loss of one small batch on paper, on one rank and on N.",
    ),
    Cause(
        "parameters",
        "rate-in-update",
        lambda f: f["parallel"] and not f["between_ranks"],
        "the steps have the right direction and the wrong length: the learning rate is scaled on "
        "one side only",
        "Give N ranks and the run alone the same learning rate for the comparison.",
    ),
    Cause(
        "parameters",
        "optimizer-state",
        lambda f: f["between_ranks"],
        "the gradients are equal, and the ranks move apart all the same: what the optimizer keeps "
        "(momentum, Adam's m and v) or its learning rate differs between ranks",
        "Make the optimizer anew on every rank after the broadcast, with the same settings.",
    ),
    Cause(
        "parameters",
        "other-steps",
        otherwise,
        "the first gradient is equal and later ones are not: something is carried from step to "
        "step (gradients not cleared, a state of the model, an old gradient)",
        "Clear the gradients before each backward pass; look for what a step leaves behind.",
    ),
    Cause(
        "counts",
        "rank-0-share",
        lambda f: f["only_rank_0"],
        "only rank 0 evaluates, and it evaluates its own share alone",
        "Let every rank evaluate its share, and sum the counts over the ranks.",
    ),
    Cause(
        "counts",
        "local-counts",
        lambda f: f["between_ranks"],
        "each rank reports the counts of its own share: they were not summed over the ranks",
        "Sum numerators and denominators over the ranks (allreduce), then divide.",
    ),
    Cause(
        "counts",
        "averaged-counts",
        lambda f: f["ratio_is_1_over_n"],
        "the counts were averaged over the ranks, as create_multi_node_evaluator does with all "
        "that it is given",
        "Sum counts over the ranks; average nothing but what was weighted.",
    ),
    Cause(
        "counts",
        "held-out-on-all",
        lambda f: f["ratio_is_n"],
        "every rank evaluates the whole held-out set, and the counts are summed: each sentence "
        "counts N times",
        "Deal the held-out set out over the ranks too.",
    ),
    Cause(
        "counts",
        "padded-counts",
        lambda f: f["more"],
        "the last share is padded: sentences were repeated to make the shares equal "
        "(scatter_dataset's force_equal_length), and count twice",
        "Deal the held-out set out with force_equal_length=False.",
    ),
    Cause(
        "counts",
        "dropped-counts",
        otherwise,
        "some held-out sentences are on no rank: the share of one rank only, or a rest left out",
        "Deal out all of them; shares may be of different sizes. Sum over all ranks.",
    ),
    Cause(
        "metrics",
        "local-metrics",
        lambda f: f["between_ranks"],
        "each rank reports the metrics of its own share",
        "Sum numerators and denominators over the ranks, then divide.",
    ),
    Cause(
        "metrics",
        "summed-metrics",
        lambda f: f["ratio_is_n"],
        "the ranks' metrics were summed, not averaged: they are N times too large",
        "Sum numerators and denominators over the ranks, then divide.",
    ),
    Cause(
        "metrics",
        "mean-of-bleus",
        lambda f: f["only_bleu"],
        "BLEU is the mean of the ranks' BLEUs: BLEU is a ratio of n-gram counts of the whole "
        "corpus, and the mean of ratios is another number",
        "Sum the n-gram counts (or gather the sentences) over the ranks, then compute one BLEU.",
    ),
    Cause(
        "metrics",
        "mean-of-means",
        otherwise,
        "the metrics are means of the ranks' means, although the ranks' shares are not of one size "
        "(in tokens, for a loss per token)",
        "Sum numerators and denominators over the ranks, then divide.",
    ),
)
