"""The figures of the talk on devices, from programs on the course's virtual GPUs."""

from allhands.trace import draw
from allhands.trace.talks import devices
from allhands.train import virtual_gpu
from allhands.train.faults.readings import readings
from allhands.train.on_gpus import Ranks, on_virtual_gpus

LINES = {  # of a program, and the array that a line makes
    "a = cupy.zeros(4)": "a",
    "cupy.cuda.Device(1).use()": "",
    "b = cupy.zeros(4)": "b",
    "with cupy.cuda.Device(2):": "",
    "    c = cupy.zeros(4)": "c",
    "d = cupy.zeros(4)": "d",
}


def bug3_togpu_talk_births() -> draw.Picture:
    """Six lines, run on three virtual GPUs: the current device, and where each array lies."""
    program = []  # after each line, a note of the current device; behind a colon, inside the block
    for line in LINES:
        indent = len(line) - len(line.lstrip()) + 4 * line.endswith(":")
        program += [line, " " * indent + "current.append(cupy.cuda.Device().id)"]
    with virtual_gpu.virtual(n_physical=3, listed="0,1,2") as cupy:
        names: dict = {"cupy": cupy, "current": []}
        exec("\n".join(program), names)
        rows = list(zip(LINES, names["current"], LINES.values(), strict=True))
        if any(name and names[name].device.id != device for _, device, name in rows):
            raise ValueError("An array does not lie on the device that was current.")
    return devices.births(rows, n_gpus=3)


def bug3_togpu_talk_bytes() -> draw.Picture:
    """Bytes of four ranks on four virtual GPUs: no device chosen, and each rank its own."""
    both = readings("bug3_togpu:unchosen")
    return devices.bytes_on_gpus(
        {
            "As it was: who uses which GPU?": _table(on_virtual_gpus(both.faulty)),
            "As it should be": _table(on_virtual_gpus(both.repaired)),
        }
    )


def _table(found: Ranks) -> list[list[int]]:
    numbers = range(found.n_gpus)
    return [[each.bytes_by_gpu.get(gpu, 0) for gpu in numbers] for each in found.ranks]


def bug3_togpu_talk_afar() -> draw.Picture:
    """All weights on GPU 0, and the others read them."""
    return devices.read_from_afar()


def bug3_togpu_talk_visible() -> draw.Picture:
    """CUDA_VISIBLE_DEVICES hides and renumbers."""
    name = "CUDA_VISIBLE_DEVICES"
    return devices.renumbered(
        (("not set", (0, 1, 2, 3)), (f"{name}=2,3", (2, 3)), (f"{name}=2", (2,)))
    )


FIGURES = (
    bug3_togpu_talk_births,
    bug3_togpu_talk_bytes,
    bug3_togpu_talk_afar,
    bug3_togpu_talk_visible,
)
