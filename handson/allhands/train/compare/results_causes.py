"""Why do N ranks come to other results than one? Rules, as data, for the checks of `results`."""

from allhands.train.compare.cause import Cause, otherwise

RESULTS = (
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
        "other-samples",
        lambda f: f["foreign"] and 0 not in f["foreign"],  # the run alone is made by rank 0
        "a sample number means another sample on some rank than in the run alone (a rank reads or "
        "orders the data in its own way), or a rank computes another loss of it",
        "Read the whole data in one order on every rank; print sample 0 on each.",
    ),
    Cause(
        "gradient",
        "summed",
        lambda f: (
            f["ratio_is_n"]
            or ("exchanged of sum" in f["fits"] and "exchanged of mean" not in f["fits"])
        ),
        "the gradient is N times too large: the ranks' gradients are summed and not averaged, "
        "though each is the mean over a batch already; or the loss is multiplied by N",
        "Divide by comm.size once: multi_node_mean_grad does it, and the loss needs no other "
        "factor than (samples here) * comm.size / (samples on all ranks).",
    ),
    Cause(
        "gradient",
        "loss-grows-with-batch",
        lambda f: f["ratio_is_1_over_n"] and "exchanged of mean" in f["fits"],
        "the loss of a batch grows with its size: it is a sum over samples, or it is divided by a "
        "fixed number of samples. So a batch of all ranks' samples weighs N times as much as the "
        "mean of the ranks' batches",
        "Divide the loss by the number of samples that the batch really has, then multiply by "
        "(samples here) * comm.size / (samples on all ranks).",
    ),
    Cause(
        "gradient",
        "divided-twice",
        lambda f: f["ratio_is_1_over_n"],
        "the gradient is N times too small: it is divided by the number of ranks twice, in the "
        "exchange and in the loss",
        "Average once: multi_node_mean_grad does it already.",
    ),
    Cause(
        "gradient",
        "clipped-before",
        lambda f: "mean of exchanged" in f["fits"] and "exchanged of mean" not in f["fits"],
        "each rank clips (or otherwise changes) its own gradient before the all-reduce, so what is "
        "averaged are clipped gradients",
        "Add GradientClipping as a hook of the optimizer that create_multi_node_optimizer wraps: "
        "it then comes after the all-reduce.",
    ),
    Cause(
        "gradient",
        "unequal-weights",
        lambda f: "exchanged of mean" in f["fits"],
        "the ranks' batches are of different sizes, but each counts the same in the average",
        "Multiply the loss by (samples here) * comm.size / (samples on all ranks).",
    ),
    Cause(
        "gradient",
        "hooks-differ",
        lambda f: f["hooks"],
        "the averaged gradients are equal, and the optimizer's hooks (clipping, weight decay) make "
        "something else of them: a hook depends on the rank or on the number of ranks",
        "Give the hooks the same settings on N ranks and alone, and let them use the averaged "
        "gradient only.",
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
        "held-out-short",
        lambda f: f["short_of"] is not None,
        "the evaluation leaves sentences out (or counts some twice) on N ranks and alone in the "
        "same way",
        "Evaluate the whole held-out set: no cut to whole batches, no limit on the length.",
    ),
    Cause(
        "counts",
        "random-counts",
        lambda f: f["random"],
        "the evaluation is random: it draws which sentences it looks at",
        "Draw nothing in the evaluation, or draw with one fixed seed.",
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
        "other-held-out",
        lambda f: f["first_right"],
        "the sentences are as many as they should be, and what is counted in them is not: a rank "
        "reads another held-out set, or cuts and cleans its sentences in another way",
        "Read the same held-out file on all ranks; treat it the same way.",
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
        "random-evaluation",
        lambda f: f["random"],
        "the evaluation is random: dropout is on, or a translation is drawn",
        'Evaluate inside `with chainer.using_config("train", False)`.',
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
