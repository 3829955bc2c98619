"""Faults of devices: chosen late, twice, or the same on all ranks (rule.py)."""

import re
from collections.abc import Iterator

from allhands.migrate.facts import NOTHING, Call, Facts, Value
from allhands.migrate.naming import DDP
from allhands.migrate.rule import Rule, Spot, asks_for_ranks, at, begun_elsewhere, first

SET = ("set_device",)
MOVES = ("to", "cuda", "to_gpu", "to_device")
FIXED = re.compile(r"^@?(?:cuda|cupy|gpu):(\d+)$")
ANY_GPU = ("cuda", "gpu")
LAB = "bench and notebook bug3_togpu"


def number_of(value: Value) -> object:
    """The device number that a value fixes for all ranks: 0, 1, ...; None if it fixes none."""
    if value.rank:
        return None
    made = [call.arg(0) for call in value.origins if call.short in ("device", "Device")]
    for each in (value, *made):
        if each.rank:
            return None
        if isinstance(each.const, str) and (found := FIXED.match(each.const)):
            return int(found[1])
        if isinstance(each.const, int) and not isinstance(each.const, bool) and each.const >= 0:
            return each.const
        if (number := _number_among(each.options)) is not None:
            return number
    return None


def _number_among(options: tuple[object, ...]) -> int | None:
    """The device number of `"cuda:0" if ... else "cpu"`; None if there are several, or none."""
    texts = (each for each in options if isinstance(each, str))
    numbers = {int(found[1]) for each in texts if (found := FIXED.match(each))}
    return numbers.pop() if len(numbers) == 1 else None


def current(value: Value) -> bool:
    """Whether a value is, or may be, "cuda" without a number: the device that is current."""
    devices = [call for call in value.origins if call.short == "device"]
    made = [call.arg(0) for call in devices if not call.given(1, "index")]
    return any(
        each.const in ANY_GPU or (not each.rank and not set(ANY_GPU).isdisjoint(each.options))
        for each in (value, *made)
    )


def chooses(facts: Facts) -> Iterator[Call]:
    """Calls that choose the current device of the process."""
    for call in facts.calls:
        if (call.short == "set_device" and call.of("torch")) or (
            call.short == "use"
            and call.receiver is not None
            and call.receiver.made_by("get_device_from_id", "get_device", "Device", "get_device_id")
        ):
            yield call


def chosen(call: Call) -> Value:
    """What a call of `chooses` chooses."""
    if call.short == "set_device":
        return call.arg(0, "device")
    makers = [each for each in call.receiver.origins if each.args]
    return makers[-1].arg(0) if makers else NOTHING


def per_process(facts: Facts) -> bool:
    """Whether the program itself shows each process another GPU."""
    return any(s.name == "CUDA_VISIBLE_DEVICES" and s.value.rank for s in facts.settings)


def uses_gpu(call: Call) -> bool:
    """Whether a call makes something on the current GPU, whichever that is."""
    if call.short == "cuda" and call.receiver is not None:
        return not call.args and "device" not in call.keywords
    if call.short == "to_gpu":
        return not call.args if call.receiver is not None else len(call.args) < 2
    if call.short == "to":
        return current(call.arg(0, "device"))
    device = call.keywords.get("device")
    made_here = device is not None and call.of("torch") and call.short != "device"
    return made_here and "init" not in call.short and current(device)


def fixed(facts: Facts) -> Iterator[Spot]:
    """A device number that is the same on all ranks."""
    if per_process(facts):
        return
    seen = set()
    for call in facts.calls:
        if (
            not call.reached
            or call.ranks
            or asks_for_ranks(call)
            or any("is_initialized" in c.text for c in call.conditions)
        ):
            continue
        value = NOTHING
        if call.short in SET and call.of("torch"):
            value = call.arg(0, "device")
        elif call.short == "use" and call in set(chooses(facts)):
            value = chosen(call)
        elif call.short in MOVES and call.receiver is not None:
            value = call.arg(0, "device")
            if call.short == "to" and isinstance(value.const, int):
                value = NOTHING
        elif call.short == "to_gpu":
            value = call.arg(1, "device")
        elif call.of("torch") and call.short not in ("device", "init_process_group"):
            value = call.keywords.get("device", NOTHING)
        elif call.short == "DistributedDataParallel":
            value = NOTHING
        number = number_of(value)
        if number is not None and number not in seen:
            seen.add(number)
            made = [each for each in value.origins if each.short in ("device", "Device")]
            yield at(made[0] if made else call, f"device {number}")


def late(facts: Facts) -> Iterator[Spot]:
    """Something is made on the current GPU before the rank has chosen its own."""
    choices = [call for call in chooses(facts) if call.reached]
    if not choices or per_process(facts):
        return
    start = choices[0]
    early = [
        call
        for call in facts.calls
        if call.reached and call.order < start.order and uses_gpu(call) and call.together(start)
    ]
    yield from first(at(call, f"the device is chosen in line {start.line}") for call in early)


def missing(facts: Facts) -> Iterator[Spot]:
    """The GPU is used, and no line chooses which."""
    if any(chooses(facts)) or facts.mentioned(
        "set_device", "CUDA_VISIBLE_DEVICES", "use", "device_index"
    ):
        return
    if any(setting.name == "CUDA_VISIBLE_DEVICES" for setting in facts.settings):
        return
    if begun_elsewhere(facts):
        return
    wraps = list(facts.find(*DDP))[:1]
    spots = [
        at(call)
        for call in facts.calls
        if call.reached and uses_gpu(call) and "device" not in call.within
        if all(call.together(wrap) for wrap in wraps)
    ]
    yield from first(spots)


def twice(facts: Facts) -> Iterator[Spot]:
    """Two choices of the device that do not agree."""
    before: Call | None = None
    for call in chooses(facts):
        if not call.reached:
            continue
        if before is not None and before.line != call.line and before.together(call):
            one, two = chosen(before), chosen(call)
            same = one == two or (one.text and one.text == two.text)
            alike = one.rank and one.rank == two.rank
            if not same and not alike and (one.rank or one.known) and (two.rank or two.known):
                yield at(call, f"line {before.line} has chosen one already")
        before = call


def by_world_rank(facts: Facts) -> Iterator[Spot]:
    """The device is the rank in the world, not the one on the node."""
    for call in chooses(facts):
        if chosen(call).rank == "world":
            yield at(call)


def after_setup(facts: Facts) -> Iterator[tuple[Call, Call]]:
    """(setup, move): a model of Chainer moves to a GPU after optimizer.setup(model)."""
    for setup in facts.find("setup"):
        model = setup.arg(0, "link")
        before = {maker for maker in model.origins if maker.short in MOVES}
        for move in facts.find("to_gpu", "to_device"):
            owner = move.receiver
            if owner is not None and model.text and owner.text == model.text and not before:
                same = move.function == setup.function and move.order > setup.order
                if same and move.together(setup) and setup.receiver is not None:
                    yield setup, move


def _moves(call: Call) -> bool:
    value = call.arg(0, "device")
    return (
        current(value)
        or bool(value.rank)
        or value.made_by("device")
        or "device" in value.text
        or any(isinstance(each, str) and ":" in each for each in value.constants)
    )


def optimizer_first(facts: Facts) -> Iterator[Spot]:
    """The optimizer is made of a model that moves afterwards."""
    for call in facts.calls:
        if call.of("torch.optim") and call.args:
            makers = [c for c in call.arg(0, "params").origins if c.short == "parameters"]
            for maker in makers:
                owner = maker.receiver
                for move in facts.find("to", "cuda"):
                    if (
                        owner is not None
                        and move.receiver is not None
                        and move.order > call.order
                        and owner.text
                        and move.receiver.text == owner.text
                        and move.function == call.function
                        and move.together(call)
                        and (move.short == "cuda" or _moves(move))
                        and not any(c.short in MOVES for c in owner.origins)
                    ):
                        yield at(move, f"the optimizer is made in line {call.line}")
    for setup, move in after_setup(facts):
        yield at(move, f"optimizer.setup stands in line {setup.line}")


def ddp_first(facts: Facts) -> Iterator[Spot]:
    """DDP is made of a model that moves afterwards."""
    for wrap in facts.find(*DDP):
        for move in facts.find("to", "cuda"):
            if (
                move.receiver is not None
                and wrap in move.receiver.origins
                and move.order > wrap.order
                and (move.short == "cuda" or _moves(move))
                and move.receiver.text in wrap.targets
                and move.together(wrap)
            ):
                yield at(move, f"DDP is made in line {wrap.line}")


def visible_late(facts: Facts) -> Iterator[Spot]:
    """CUDA_VISIBLE_DEVICES is set when CUDA has already looked."""
    used = [
        call
        for call in facts.calls
        if call.reached
        and (uses_gpu(call) or (call.of("torch.cuda") and call.short != "is_initialized"))
    ]
    for setting in facts.settings:
        early = [call for call in used if call.order < setting.order]
        if setting.name == "CUDA_VISIBLE_DEVICES" and setting.reached and early:
            yield at(setting, f"line {early[0].line} has used CUDA before")


def load_where(facts: Facts) -> Iterator[Spot]:
    """A checkpoint is loaded to the device from which it was saved."""
    loads = [call for call in facts.find("load") if call.name == "torch.load"]
    if any(call.given(1, "map_location") for call in loads):
        return
    if any(call.arg(0, "backend").const == "gloo" for call in facts.find("init_process_group")):
        return
    put_back = [call for call in facts.find("load_state_dict", "load_objects") if call.args]
    for call in loads:
        if not call.ranks and any(call in each.arg(0).origins for each in put_back):
            yield at(call)


DEVICES = (
    Rule(
        "device-late",
        "sure",
        "all",
        "The device is chosen after it was used",
        "Until a rank chooses, device 0 is current: what is made before lies on GPU 0, on all "
        "ranks. Rank 0 works by luck.",
        "Choose the device by local rank in the first lines of main(), before anything is made or "
        "moved.",
        LAB,
        late,
    ),
    Rule(
        "device-fixed",
        "likely",
        "all",
        "The same device number on every rank",
        "All ranks of a node work on this one GPU; the others have nothing to do.",
        "Take the local rank: comm.intra_rank, int(os.environ['LOCAL_RANK']), hvd.local_rank().",
        LAB,
        fixed,
    ),
    Rule(
        "device-missing",
        "likely",
        "torch horovod",
        "A GPU is used, and no line chooses which",
        "'cuda' without a number is the current device, and that is GPU 0 on every rank.",
        "torch.cuda.set_device(local_rank) once, before the first use of CUDA.",
        LAB,
        missing,
    ),
    Rule(
        "device-twice",
        "likely",
        "all",
        "The device is chosen twice, and differently",
        "What is made between the two lines lies on another GPU than what comes after.",
        "One line chooses the device; all others use that variable.",
        LAB,
        twice,
    ),
    Rule(
        "device-by-world-rank",
        "likely",
        "all",
        "The device is the rank in the world, not the rank on the node",
        "It works on one node. On the second node rank 4 asks for GPU 4 of 0 to 3.",
        "Use the local rank (comm.intra_rank, LOCAL_RANK), or rank % number of devices.",
        "notebook lab2_dataparallel, edit 2",
        by_world_rank,
    ),
    Rule(
        "optimizer-before-move",
        "look",
        "all",
        "The optimizer is made before the model moves to the GPU",
        "It works as long as the parameters stay the same objects. A copy that moves, or another "
        "model, is one that the optimizer does not know.",
        "First move the model, then make the optimizer of it (Chainer: then optimizer.setup).",
        "https://docs.pytorch.org/docs/stable/optim.html; " + LAB,
        optimizer_first,
    ),
    Rule(
        "ddp-before-move",
        "sure",
        "torch",
        "The model moves after DDP has taken its parameters",
        "DDP puts its hooks and buckets on the parameters that it finds; they must not change "
        "afterwards.",
        "model.to(device) first, then DistributedDataParallel(model).",
        "https://docs.pytorch.org/docs/stable/generated/"
        "torch.nn.parallel.DistributedDataParallel.html",
        ddp_first,
    ),
    Rule(
        "visible-devices-late",
        "sure",
        "all",
        "CUDA_VISIBLE_DEVICES is set after CUDA was used",
        "CUDA reads it once, at its first use; later changes do nothing.",
        "Set it in the job script, or before anything of CUDA; or choose the device by local rank.",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (environment variables)",
        visible_late,
    ),
    Rule(
        "load-without-map",
        "likely",
        "torch horovod",
        "A checkpoint is loaded without map_location",
        "Tensors go back to the device they were saved from, mostly cuda:0: all ranks fill GPU 0.",
        "torch.load(path, map_location='cpu'), or the rank's own device.",
        "notebook bug1_errorcount; https://docs.pytorch.org/docs/stable/generated/torch.load.html",
        load_where,
    ),
)
