"""Faults of data: who trains on which samples (rule.py)."""

from collections.abc import Iterator

from allhands.migrate.facts import Call, Facts
from allhands.migrate.naming import MODEL_PARALLEL, REDUCTIONS, SHARDERS, WRAPPERS
from allhands.migrate.rule import Rule, Spot, at, first, one_after_the_other

ITERATORS = ("SerialIterator", "MultiprocessIterator", "MultithreadIterator", "DaliIterator")
SAMPLERS = ("DistributedSampler",)
LOADERS = {
    *("urlretrieve", "snapshot_download", "extractall", "download_url", "wget"),
    *("download_and_extract_archive",),
}
WAITS = {
    *("barrier", "Barrier", "bcast", "bcast_obj", "scatter_dataset", "broadcast", "FileLock"),
    *("broadcast_object_list", "monitored_barrier", "broadcast_object"),
}
LAB2 = "notebook lab2_dataparallel, edit 3"


def trained_on(facts: Facts, made: Call) -> bool:
    """Whether a loop that computes gradients goes over what this call has made."""
    return any(
        loop.trains and made in loop.over.origins for call in facts.calls for loop in call.loops
    )


def divides_by_hand(facts: Facts) -> bool:
    """Whether the program shards in some way of its own."""
    return bool(facts.sharded) or facts.mentioned(*SHARDERS, "IterableDataset", "Subset")


def sampler_unused(facts: Facts) -> bool:
    """Whether samplers are made, and no call ever gets one of them."""
    made = set(facts.find(*SAMPLERS))
    given = {maker for call in facts.calls for value in call.values for maker in value.origins}
    others = SHARDERS.difference(SAMPLERS)
    return bool(made) and not made & given and not facts.mentioned(*others, "IterableDataset")


def no_sampler(facts: Facts) -> Iterator[Spot]:
    """All ranks read all data."""
    if not facts.mentioned(*WRAPPERS, "DistributedOptimizer"):
        return
    if divides_by_hand(facts) and not sampler_unused(facts):
        return
    if facts.mentioned(*MODEL_PARALLEL):
        return
    for call in facts.find("DataLoader"):
        takes = call.given(3, "sampler") or call.given(4, "batch_sampler")
        ranked = any(value.rank or value.size for value in call.values)
        shuffles = call.arg(2, "shuffle").const is True
        if not takes and not ranked and (shuffles or trained_on(facts, call)):
            yield at(call)


def no_scatter(facts: Facts) -> Iterator[Spot]:
    """All ranks of a ChainerMN program read all data."""
    if divides_by_hand(facts) or facts.mentioned(*MODEL_PARALLEL):
        return
    if not facts.mentioned("create_multi_node_optimizer"):
        return
    calls = [call for call in facts.find(*ITERATORS) if call.reached]
    for call in calls[:1]:
        ranked = any(value.rank or value.size for value in call.values)
        if not ranked and call.arg(2, "repeat").const is not False:
            yield at(call)


def shuffle_and_sampler(facts: Facts) -> Iterator[Spot]:
    """PyTorch refuses both together."""
    for call in facts.find("DataLoader"):
        sampler = call.arg(3, "sampler")
        given = "sampler" in call.keywords or len(call.args) > 3
        sometimes = any(maker.conditions != call.conditions for maker in sampler.origins)
        none = sampler.known and sampler.const is None
        if given and not none and not sometimes and call.arg(2, "shuffle").const is True:
            yield at(call)


def no_set_epoch(facts: Facts) -> Iterator[Spot]:
    """The sampler draws the same order in every epoch."""
    epochs = any(len(call.loops) > 1 for call in facts.find("backward"))
    told = [call.receiver for call in facts.find("set_epoch") if call.receiver is not None]
    if facts.mentioned("set_epoch") and not told:
        return
    if any(not each.made_by(*SAMPLERS) for each in told) or not epochs:
        return
    told_samplers = {maker for each in told for maker in each.origins}
    for call in facts.find(*SAMPLERS):
        if call.arg(3, "shuffle").const is not False and call not in told_samplers:
            if told and not any(_draws(facts, loader, call) for loader in facts.find("DataLoader")):
                continue
            yield at(call)
            return


def _draws(facts: Facts, loader: Call, sampler: Call) -> bool:
    """Whether a training loop goes over this loader, and this sampler says its order."""
    return sampler in loader.arg(3, "sampler").origins and trained_on(facts, loader)


def set_epoch_once(facts: Facts) -> Iterator[Spot]:
    """set_epoch is called, and does not change the order."""
    for call in facts.find("set_epoch", reached=True):
        value = call.arg(0, "epoch")
        if call.function and not call.loops and not facts.has_main:
            continue
        if not call.loops:
            yield at(call, "it stands outside the loop over epochs")
        elif isinstance(value.const, int):
            yield at(call, f"the number is always {value.const}")


def seeds_differ(facts: Facts) -> Iterator[Spot]:
    """Each rank cuts its share out of another order."""
    for line, value in facts.sharded:
        for call in value.origins:
            if call.short in ("permutation", "randperm", "sample") and (
                (call.receiver is not None and call.receiver.rank)
                or any(each.rank for each in call.values)
                or any(
                    v.rank
                    for o in (call.receiver.origins if call.receiver else ())
                    for v in o.values
                )
            ):
                yield Spot(line, line, f"the order comes from line {call.line}")


def loads(call: Call) -> bool:
    """Whether a call loads data from the network to the disk."""
    return call.arg(99, "download").const is True or call.short in LOADERS


def downloads(facts: Facts) -> Iterator[Spot]:
    """All ranks write the same data set to disk at once."""
    for call in facts.calls:
        careful = any("exists" in each.text or each.text == "except" for each in call.conditions)
        alone = call.ranks or one_after_the_other(call)
        if loads(call) and call.reached and not alone and not careful:
            yield at(call)


def download_without_wait(facts: Facts) -> Iterator[Spot]:
    """One rank loads the data; the others do not wait for it."""
    if facts.mentioned(*WAITS):
        return
    for call in facts.calls:
        if call.ranks == "first" and call.reached and loads(call):
            yield at(call)


def workers_fork(facts: Facts) -> Iterator[Spot]:
    """Loader processes are forked from a process in which MPI already runs."""
    if not facts.uses("mpi4py", "chainermn"):
        return
    starts = list(facts.find("set_start_method"))
    begun = [c for c in facts.find("create_communicator", "Init", "init") if c.reached]
    if starts and begun and starts[0].order > begun[0].order and starts[0].reached:
        yield at(starts[0], f"the communicator is made before it, in line {begun[0].line}")
    if starts or facts.mentioned("forkserver", "get_context", "multiprocessing_context"):
        return
    for call in facts.find("MultiprocessIterator", "DataLoader"):
        workers = call.arg(5, "num_workers").const
        if call.short == "MultiprocessIterator" or (isinstance(workers, int) and workers > 0):
            yield at(call)
            return


def own_shard(facts: Facts) -> Iterator[Spot]:
    """The held-out set is divided over the ranks, and nobody adds up the counts."""
    if facts.mentioned(*REDUCTIONS) or facts.mentioned("create_multi_node_evaluator"):
        return
    for call in facts.calls:
        if call.short in ("print", "write", "info", "log", "add_scalar") or not call.loops:
            continue
        loop = call.loops[-1]
        loaders = [maker for maker in loop.over.origins if maker.short == "DataLoader"]
        divided = any(m.arg(3, "sampler").made_by(*SAMPLERS) for m in loaders)
        if divided and not loop.trains and {"no_grad", "inference_mode"}.intersection(call.within):
            yield Spot(loop.line, loop.line)
            return


def same_seed(facts: Facts) -> Iterator[Spot]:
    """The same random numbers on all ranks: also the same augmentation and dropout."""
    augments = facts.mentioned(
        "RandomCrop", "RandomHorizontalFlip", "RandomResizedCrop", "random_flip"
    )
    if not augments:
        return
    for call in facts.find("manual_seed", "seed", "manual_seed_all"):
        value = call.arg(0)
        if call.reached and value.known and not call.ranks and call.of("torch", "numpy", "random"):
            yield at(call)
            return


def one_only(spots):
    """A matcher that reports its first place only."""
    return lambda facts: first(spots(facts))


DATA = (
    Rule(
        "no-sampler",
        "likely",
        "torch horovod",
        "Every rank trains on all data",
        "Without a DistributedSampler each rank goes through the whole data set: N times the work, "
        "and the same epoch.",
        "DataLoader(dataset, sampler=DistributedSampler(dataset)), and no shuffle=True.",
        LAB2,
        one_only(no_sampler),
    ),
    Rule(
        "no-scatter",
        "likely",
        "chainer",
        "Every rank trains on all data",
        "No scatter_dataset: each rank goes through the whole data set, N times the work.",
        "train = chainermn.scatter_dataset(train, comm, shuffle=True), on all ranks.",
        LAB2,
        no_scatter,
    ),
    Rule(
        "shuffle-with-sampler",
        "sure",
        "torch horovod",
        "shuffle=True together with a sampler",
        "PyTorch refuses it (ValueError): the sampler already says the order.",
        "Leave shuffle away; DistributedSampler shuffles.",
        "https://docs.pytorch.org/docs/stable/data.html",
        shuffle_and_sampler,
    ),
    Rule(
        "set-epoch-missing",
        "sure",
        "torch horovod",
        "sampler.set_epoch is never called",
        "DistributedSampler draws its order from seed + epoch: without set_epoch every epoch has "
        "the same order.",
        "sampler.set_epoch(epoch) as the first line of the loop over epochs, on all ranks.",
        "https://docs.pytorch.org/docs/stable/data.html",
        no_set_epoch,
    ),
    Rule(
        "set-epoch-once",
        "sure",
        "torch horovod",
        "sampler.set_epoch does not follow the epochs",
        "With the same number in every epoch the order stays the same.",
        "Call it inside the loop over epochs, with the number of the epoch.",
        "https://docs.pytorch.org/docs/stable/data.html",
        set_epoch_once,
    ),
    Rule(
        "shuffle-differs",
        "sure",
        "all",
        "Each rank cuts its share out of another order",
        "The order is shuffled with a seed that depends on the rank: some samples are on two "
        "ranks, others on none. It trains all the same.",
        "One order on all ranks (same seed), and then order[rank::size].",
        LAB2 + "; `allhands compare` shows it",
        seeds_differ,
    ),
    Rule(
        "download-everywhere",
        "likely",
        "torch horovod mpi",
        "All ranks download the data at once",
        "N processes write the same files: one may read what another has half written.",
        "Download before the job, or on one rank with a barrier after it.",
        "notebook lab2_dataparallel, edit 6",
        one_only(downloads),
    ),
    Rule(
        "download-without-wait",
        "likely",
        "torch horovod mpi",
        "One rank downloads, and the others do not wait",
        "The other ranks open files that are not there yet, or half written.",
        "A barrier after the branch, called by all ranks.",
        "notebook lab2_dataparallel, edit 8",
        download_without_wait,
    ),
    Rule(
        "workers-after-mpi",
        "likely",
        "chainer mpi",
        "Loader processes are forked while MPI runs",
        "A fork copies the state of MPI and of its network: programs crash or hang, some days.",
        "multiprocessing.set_start_method('forkserver') and one small process started, before the "
        "communicator is made; DataLoader: multiprocessing_context='forkserver'.",
        "https://docs.chainer.org/en/stable/chainermn/tutorial/tips_faqs.html",
        workers_fork,
    ),
    Rule(
        "metric-of-own-shard",
        "likely",
        "torch horovod",
        "Each rank evaluates its own part, and nobody adds up",
        "The held-out set is divided, so what rank 0 prints is about its own samples only.",
        "all_reduce the counts (right, total, loss sum), then divide.",
        "notebook lab2_dataparallel, edit 5",
        own_shard,
    ),
    Rule(
        "same-seed",
        "look",
        "all",
        "The same random numbers on all ranks",
        "The same seed everywhere makes all ranks draw the same augmentation and dropout.",
        "Same seed for the model and the order of the data; seed + rank for augmentation.",
        "notebook lab2_dataparallel, edit 3",
        same_seed,
    ),
)
