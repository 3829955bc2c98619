"""What must change in a program that has no ranks yet? The edits of lab 2, at their lines.

These are no faults: the program is right as it is. They say where each edit goes.
"""

from collections.abc import Iterator

from allhands.migrate.facts import Call, Facts
from allhands.migrate.rule import Rule, Spot, at, first
from allhands.migrate.rules_data import ITERATORS, trained_on
from allhands.migrate.rules_device import current, number_of
from allhands.migrate.rules_output import EXTENSIONS, SPEAKING

OPTIMIZERS = {
    *("SGD", "Adam", "AdamW", "MomentumSGD", "RMSprop", "Adagrad", "Adadelta", "NesterovAG"),
    *("CorrectedMomentumSGD", "Adamax", "RAdam", "NAdam", "LBFGS", "MSVAG", "SMORMS3"),
}
LAB2 = "notebook lab2_dataparallel, edit "


def optimizers(facts: Facts) -> Iterator[Call]:
    """Where optimizers are made."""
    for call in facts.calls:
        if call.short in OPTIMIZERS and call.of("torch.optim", "chainer.optimizers"):
            yield call


def trains(facts: Facts) -> bool:
    """Whether the script trains something at all."""
    return any(optimizers(facts)) and facts.mentioned("backward", "update", "StandardUpdater")


def begin(facts: Facts) -> Iterator[Spot]:
    """The first thing that a rank must know comes before the first thing that is made."""
    if not trains(facts):
        return
    made = [call for call in facts.calls if call.reached and call.of("torch", "chainer")]
    yield from (at(call) for call in made[:1])


def device(facts: Facts) -> Iterator[Spot]:
    """Lines that say which device."""
    if not trains(facts):
        return
    for call in facts.calls:
        value = call.arg(0, "device")
        names = call.short in ("device", "cuda", "to_gpu", "get_device", "get_device_from_id")
        moves = call.short in ("to", "to_device", "use", "set_device")
        if value.const == "cpu":
            continue
        if not call.reached:
            continue
        says = current(value) or number_of(value) is not None
        if names:
            yield at(call)
        elif moves and says and not value.made_by("device"):
            yield Spot(value.line, value.line) if value.line else at(call)  # where "cuda" stands


def data(facts: Facts) -> Iterator[Spot]:
    """Where the training data is handed out."""
    if trains(facts):
        calls = list(facts.find("DataLoader", *ITERATORS, "permutation", "randperm"))
        trained = [c for c in calls if trained_on(facts, c) or c.arg(2, "shuffle").const is True]
        yield from (at(call) for call in (trained or calls)[:2])


def optimizer(facts: Facts) -> Iterator[Spot]:
    """Where the optimizer is made."""
    if trains(facts):
        yield from (at(call) for call in optimizers(facts))


def evaluate(facts: Facts) -> Iterator[Spot]:
    """Where the held-out set is counted."""
    if not trains(facts):
        return
    found = [*facts.find("Evaluator"), *facts.find("no_grad", "inference_mode", "no_backprop_mode")]
    found += facts.find("evaluate", "accuracy", "validate")
    yield from first(at(call) for call in found)


def output(facts: Facts) -> Iterator[Spot]:
    """Where the program prints and writes."""
    if not trains(facts):
        return
    spots = []
    for call in facts.calls:
        written = call.name in ("torch.save", "chainer.serializers.save_npz", "print")
        written = written or (
            call.short == "extend" and call.arg(0).made_by(*EXTENSIONS, *SPEAKING)
        )
        if written and call.reached:
            spots.append(at(call))
    yield from spots[:1] if len(spots) == 1 else first(spots)


def edit(number: int, name: str, title: str, why: str, cure: str, spots) -> Rule:
    """An edit of lab 2, as a rule for serial programs."""
    rule_id, source = f"edit-{number}-{name}", f"{LAB2}{number}"
    return Rule(rule_id, "look", "torch chainer", title, why, cure, source, spots, serial=True)


SERIAL = (
    edit(
        1,
        "begin",
        "Begin: who am I?",
        "A rank must know its number and the number of ranks before it makes anything.",
        "chainermn.create_communicator(...) or torch.distributed.init_process_group(...) here.",
        begin,
    ),
    edit(
        2,
        "device",
        "The device of this rank",
        "All ranks of a node would share one device.",
        "Choose it by local rank, once, before this line.",
        device,
    ),
    edit(
        3,
        "data",
        "The share of this rank",
        "Every rank would go through all samples.",
        "scatter_dataset (ChainerMN), DistributedSampler and set_epoch (PyTorch).",
        data,
    ),
    edit(
        4,
        "optimizer",
        "Gradients of all ranks",
        "Every rank would update with its own gradient.",
        "create_multi_node_optimizer (ChainerMN); DistributedDataParallel around the model "
        "(PyTorch). The batch of all ranks is N times as large: think of the rate (edit 7).",
        optimizer,
    ),
    edit(
        5,
        "evaluate",
        "Counts of all ranks",
        "Every rank would report about its own samples.",
        "Add up the counts over the ranks, then divide.",
        evaluate,
    ),
    edit(
        6,
        "output",
        "One rank speaks and writes",
        "Every rank would print and write the same.",
        "if rank == 0, and no collective inside; all ranks load what was saved (edit 8).",
        output,
    ),
)
