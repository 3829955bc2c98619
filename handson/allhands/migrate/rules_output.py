"""Faults of output and of measuring: files of all ranks in one place, means of means (rule.py)."""

from collections.abc import Iterator

from allhands.migrate.facts import Call, Facts, Value
from allhands.migrate.naming import DDP, REDUCTIONS, SAME_BATCH
from allhands.migrate.rule import Rule, Spot, at, first, one_after_the_other
from allhands.migrate.rules_optimizer import is_optimizer

EXTENSIONS = {
    *("LogReport", "snapshot", "snapshot_object", "PlotReport", "DumpGraph", "dump_graph"),
    *("VariableStatisticsPlot",),
}
SPEAKING = {"PrintReport", "ProgressBar", "PrintReportNotebook", "PrintReportCLI"}
BARS = ("tqdm", "trange")
WRITERS = ("SummaryWriter",)
SAVES = {
    *("torch.save", "chainer.serializers.save_npz", "chainer.serializers.save_hdf5"),
    "wandb.init",
}
CLOCKS = ("time.time", "time.perf_counter", "time.monotonic")
WAITS = {
    "synchronize",
    "item",
    "cpu",
    "numpy",
    "tolist",
    "Event",
    "elapsed_time",
    "to_cpu",
    "barrier",
}
PATHS = {  # of what writes: place and name of the argument that is a path
    "save": (1, "f"),
    "open": (0, "file"),
    "snapshot_object": (1, "filename"),
    "snapshot": (1, "filename"),
    "LogReport": (3, "filename"),
    "PlotReport": (4, "filename"),
    "SummaryWriter": (0, "log_dir"),
    "Trainer": (2, "out"),
    "save_npz": (0, "file"),
    "save_hdf5": (0, "filename"),
}
LAB2_6 = "notebook lab2_dataparallel, edit 6"


def path_of(call: Call) -> Value:
    """Where a call writes: its argument for the path."""
    position, keyword = PATHS.get(call.short, (0, "filename"))
    return call.arg(position, keyword)


def everywhere(call: Call) -> bool:
    """Whether all ranks come here, as far as the script shows."""
    return call.reached and not call.ranks


def extended(facts: Facts, names: set[str]) -> Iterator[Spot]:
    """Extensions of a Chainer trainer that all ranks have."""
    if any(path_of(call).rank for call in facts.find("Trainer")):
        return
    for call in facts.find("extend"):
        makers = [each for each in call.arg(0).origins if each.of("chainer")]
        bad = [maker for maker in makers if maker.short in names]
        shared = any(maker.short == "multi_node_snapshot" for maker in call.arg(0).origins)
        if bad and not shared and everywhere(call) and not path_of(bad[0]).rank:
            yield at(call, bad[0].short)


def files(facts: Facts) -> Iterator[Spot]:
    """Files that all ranks write to the same path."""
    yield from extended(facts, EXTENSIONS)
    for call in facts.calls:
        path = path_of(call)
        if not everywhere(call) or path.rank or one_after_the_other(call):
            continue
        board = call.short in WRITERS and call.of("torch.utils.tensorboard", "tensorboardX")
        ranked = call.name == "wandb.init" and any(value.rank for value in call.values)
        if (call.name in SAVES and not ranked) or board:
            yield at(call)
        elif call.name == "open" and call.receiver is None:
            mode = call.arg(1, "mode").const
            writes = isinstance(mode, str) and set(mode) & {"w", "a", "x"}
            if writes and (isinstance(path.const, str) or path.text.startswith("args.")):
                yield at(call)


def speaking(facts: Facts) -> Iterator[Spot]:
    """Text of all ranks at once."""
    if "print" in facts.replaced or "stdout" in facts.replaced:
        return  # ranks that are not to speak have been given another print
    if facts.mentioned("setup_for_distributed", "init_distributed_mode"):
        return
    spots = list(extended(facts, SPEAKING))
    for call in facts.find(*BARS):
        if everywhere(call) and not call.given(99, "disable") and call.of("tqdm"):
            spots.append(at(call, "one bar a rank"))
    for call in facts.find("print"):
        texts = any(value.rank or value.size for value in call.values)
        conditional = any(each.text == "except" for each in call.conditions)
        if everywhere(call) and call.loops and not texts and not conditional:
            spots.append(at(call))
    if facts.uses("chainermn", "torch.distributed", "horovod", "mpi4py"):
        yield from first(spots)


def plain_evaluator(facts: Facts) -> Iterator[Spot]:
    """An evaluator that knows only this rank's samples."""
    if facts.mentioned(
        *("create_multi_node_evaluator", "ObservationAggregator", "GenericMultiNodeEvaluator"),
        *SAME_BATCH,
    ):
        return
    names = {"Evaluator"} | {
        name for name, bases in facts.bases.items() if "Evaluator" in bases or "ev" in bases
    }
    for call in facts.find("extend"):
        makers = [m for m in call.arg(0).origins if m.short in names]
        if makers and everywhere(call):
            yield at(call)


def means_of_means(facts: Facts) -> Iterator[Spot]:
    """A ratio of this rank's counts is averaged over the ranks."""
    for call in facts.calls:
        if call.short in REDUCTIONS and (call.args or call.keywords):
            value = call.args[0] if call.args else next(iter(call.keywords.values()))
            if value.ratio:
                yield at(call, value.text)


def state_of_ddp(facts: Facts) -> Iterator[Spot]:
    """The saved names begin with "module."."""
    for call in facts.find("state_dict"):
        owner = call.receiver
        if owner is not None and owner.made_by(*DDP) and not owner.text.endswith(".module"):
            saved = any(save.line <= call.line <= save.end_line for save in facts.find("save"))
            if saved and not is_optimizer(owner):
                yield at(call)


def item_in_loop(facts: Facts) -> Iterator[Spot]:
    """The program waits for the GPU in every step."""
    steps = {tuple(loop.line for loop in call.loops) for call in facts.find("backward")}
    spots = [
        at(call)
        for call in facts.find("item")
        if call.loops
        and tuple(loop.line for loop in call.loops) in steps
        and call.receiver is not None
        and not any("%" in c.text for c in call.conditions)
        and call.receiver.text.endswith("loss")
    ]
    yield from first(spots)


def unsynchronised(facts: Facts) -> Iterator[Spot]:
    """A clock is read while the GPU still works."""
    if not facts.uses("torch") or facts.mentioned(*WAITS):
        return
    if not facts.mentioned("cuda", "nccl", "set_device"):
        return
    clocks = [
        call for call in facts.calls if call.name in CLOCKS and call.loops and call.loops[-1].trains
    ]
    yield from first(at(call) for call in clocks)


def save_and_read(facts: Facts) -> Iterator[Spot]:
    """Rank 0 writes a file that all ranks read at once."""
    if facts.mentioned("barrier", "Barrier", "bcast", "bcast_obj", "broadcast_object_list"):
        return
    if facts.mentioned(*REDUCTIONS):
        return
    for save in facts.find("save", "save_npz"):
        if save.ranks != "first" or not save.reached or not save.of("torch", "chainer"):
            continue
        path = path_of(save)
        for load in facts.find("load", "load_npz"):
            other = load.arg(0, "f")
            same = (path.known and path.const == other.const) or (
                path.text and path.text == other.text
            )
            if same and everywhere(load) and load.order > save.order and not load.loops:
                yield at(load, f"rank 0 writes it in line {save.line}")


OUTPUT = (
    Rule(
        "files-of-all-ranks",
        "sure",
        "all",
        "All ranks write the same file",
        "N processes write to one path: the file is of the last one, or of several mixed.",
        "Under `if rank == 0:` (no collective inside), or with the rank in the file's name.",
        LAB2_6,
        files,
    ),
    Rule(
        "read-while-written",
        "likely",
        "all",
        "All ranks read a file that rank 0 still writes",
        "Nothing makes the others wait until rank 0 has finished.",
        "A barrier between, called by all ranks.",
        "notebook lab2_dataparallel, edit 8",
        save_and_read,
    ),
    Rule(
        "evaluator-of-one-rank",
        "likely",
        "chainer",
        "The evaluator is not a multi-node evaluator",
        "Each rank reports about the samples that it has; what rank 0 prints is not the whole set.",
        "evaluator = chainermn.create_multi_node_evaluator(evaluator, comm), on all ranks.",
        "notebook lab2_dataparallel, edit 5",
        plain_evaluator,
    ),
    Rule(
        "mean-of-means",
        "likely",
        "all",
        "A ratio is averaged over the ranks",
        "Ranks with fewer samples count as much as the others: the mean of ratios is not the "
        "ratio of the sums.",
        "Add up the counts over the ranks first, then divide.",
        "notebook lab2_dataparallel, edit 5",
        means_of_means,
    ),
    Rule(
        "text-of-all-ranks",
        "look",
        "all",
        "All ranks print the same lines",
        "N copies of every line, mixed, hide the one that matters.",
        "Print on rank 0, or begin the line with the rank.",
        LAB2_6,
        speaking,
    ),
    Rule(
        "names-with-module",
        "look",
        "torch",
        "The state of the DDP wrapper is saved",
        "All names begin with 'module.': a program without DDP cannot load them.",
        "torch.save(model.module.state_dict(), path).",
        "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
        state_of_ddp,
    ),
    Rule(
        "wait-in-each-step",
        "look",
        "torch horovod",
        "loss.item() in every step",
        "The CPU waits until the GPU is done, and only then prepares the next step.",
        "Add up loss.detach() on the GPU, and ask for the number every 100 steps.",
        "notebook bug4_slower",
        item_in_loop,
    ),
    Rule(
        "clock-without-wait",
        "look",
        "torch horovod",
        "Time is taken while the GPU still works",
        "CUDA calls return at once: the clock shows how long it took to ask.",
        "torch.cuda.synchronize() before each reading of the clock, and leave out the first steps.",
        "notebook bug4_slower; https://docs.pytorch.org/docs/stable/notes/cuda.html",
        unsynchronised,
    ),
)
