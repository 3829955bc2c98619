"""GPUs: the driver, CuPy, PyTorch and NCCL."""

import json
import re

from packaging.version import InvalidVersion, Version

from allhands.doctor.finding import Finding
from allhands.doctor.machine import Machine, Ran
from allhands.doctor.probes.this_python import MAKE_ENV, TIME_LIMIT_S

CPU_LEVEL = "the labs run here at the CPU level"
SMI_TIME_LIMIT_S = 8.0  # a driver that hangs does not answer at all
# The oldest Linux driver that runs programs of a CUDA major version.
# Source: CUDA Toolkit release notes, "Minimum Required Driver Version for CUDA Minor Version
# Compatibility".
OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580"}
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]

# chainer.backends.cuda.available is True on a login node without a GPU: CuPy is asked itself.
CUPY = """
import json
seen = {"devices": 0, "nccl": None, "names": [], "sum": None, "cupy": None}
import cupy
seen["cupy"] = cupy.__version__
if cupy.cuda.is_available():
    seen["devices"] = cupy.cuda.runtime.getDeviceCount()
    for device in range(seen["devices"]):
        seen["names"].append(cupy.cuda.runtime.getDeviceProperties(device)["name"].decode())
    seen["sum"] = float(cupy.arange(5, dtype="f").sum())
try:
    from cupy.cuda import nccl
    seen["nccl"] = nccl.get_version()
except Exception as error:
    seen["nccl_error"] = str(error)
print("\\n" + json.dumps(seen))
"""


def _cupy(machine: Machine) -> str | None:
    """The name of the installed CuPy package."""
    names = ("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy")
    return next((name for name in names if machine.version(name)), None)


def _torch_cuda(machine: Machine) -> str:
    """The CUDA version that PyTorch is built for, such as "12.6"; empty: none."""
    found = re.search(
        r"""^cuda\b.*?=\s*['"]([\d.]+)""", machine.package_text("torch", "torch/version.py"), re.M
    )
    return found[1] if found else ""


def devices(machine: Machine) -> list[Finding]:
    """The driver, then what CuPy and PyTorch make of it. None at all is good: the CPU level."""
    if machine.which("nvidia-smi") is None:
        return gpu(machine, "")
    ran = machine.run(QUERY, SMI_TIME_LIMIT_S)
    if ran.code != 0 and "no devices" in ran.output.lower():
        return gpu(machine, "")  # programs of a driver, on a machine without a GPU
    found = driver(machine, ran)
    return [found] if found.status == "bad" else [found, *gpu(machine, ran.lines[0])]


def driver(machine: Machine, ran: Ran) -> Finding:
    """nvidia-smi has answered, and its driver is new enough for each library that is here."""

    def bad(seen: str, advice: str) -> Finding:
        return Finding("driver", "bad", seen, advice, blocks="gpu")

    if ran.code is None:
        seen = f"nvidia-smi gave no answer after {SMI_TIME_LIMIT_S:.0f} s"
        return bad(seen, "The driver hangs: use another node, and tell who runs this one.")
    found = re.search(r", *(\d+[\d.]+)\s*$", ran.output, re.MULTILINE)
    if ran.code != 0 or not found:
        advice = "The driver does not run: use another node, and tell who runs this one."
        return bad(ran.last_line, advice)
    version, needs = found[1], {}
    if built := re.search(r"cuda(\d\d)x", _cupy(machine) or ""):
        needs[f"CuPy (CUDA {built[1]})"] = int(built[1])
    if torch_cuda := _torch_cuda(machine):
        needs[f"PyTorch (CUDA {torch_cuda})"] = int(torch_cuda.split(".")[0])
    too_new = [
        f"{who} needs {OLDEST_DRIVER[cuda]}"
        for who, cuda in needs.items()
        if cuda in OLDEST_DRIVER and _older(version, OLDEST_DRIVER[cuda])
    ]
    if too_new:
        fits = [cuda for cuda, oldest in OLDEST_DRIVER.items() if not _older(version, oldest)]
        advice = "Ask for a newer driver"
        if fits:
            advice += f", or install what is built for CUDA {max(fits)}: cupy-cuda{max(fits)}x"
            advice += f" in place of {_cupy(machine)}" if _cupy(machine) else ""
        return bad(f"{version}, but {'; '.join(too_new)}", f"{advice}.")
    return Finding("driver", "good", f"{version}, new enough for {', '.join(needs) or 'CUDA'}")


def _older(one: str, other: str) -> bool:
    try:
        return Version(one) < Version(other)
    except InvalidVersion:
        return False


def gpu(machine: Machine, smi: str) -> list[Finding]:
    """What CuPy sees. smi: nvidia-smi's line for the first GPU; empty: there is no driver."""
    cupy = _cupy(machine)

    def finding(status: str, seen: str, advice: str = "") -> list[Finding]:
        return [Finding("GPU", status, seen, advice, blocks="gpu")]

    install = "pip install '.[gpu]' (in the project's folder)"
    elsewhere = "The GPU level needs a GPU: on a cluster, allhands doctor --job --level gpu"
    if not smi and not cupy:
        return finding("good", f"none: {CPU_LEVEL}", elsewhere)
    if not cupy:
        return finding("warn", f"{smi}, but no CuPy: {CPU_LEVEL}", f"To use it: {install}")
    ran = machine.run([str(machine.executable), "-c", CUPY], TIME_LIMIT_S)
    try:
        seen = json.loads(ran.last_line)
    except ValueError:
        if not smi:
            return finding("good", f"none (CuPy: {ran.last_line}): {CPU_LEVEL}", elsewhere)
        advice = f"Does CuPy's CUDA version fit the driver's? Compare: nvidia-smi. Else: {install}"
        return finding("warn", f"CuPy does not start: {ran.last_line}", advice)
    if not seen["devices"]:
        if not smi:
            text = f"none (CuPy {seen['cupy']} is there): {CPU_LEVEL}"
            return finding("good", text, elsewhere)
        hidden = machine.environ.get("CUDA_VISIBLE_DEVICES")
        text = f"{smi}, but CuPy {seen['cupy']}: 0"
        if hidden is not None:
            advice = "unset CUDA_VISIBLE_DEVICES (in a job: ask for a GPU)"
            return finding("warn", f"{text} (CUDA_VISIBLE_DEVICES='{hidden}')", advice)
        advice = f"Is the driver too old for it? Is CuPy another CUDA's? {install}"
        return finding("warn", text, advice)
    if seen["sum"] != 10.0:
        return finding("bad", f"0+1+2+3+4 is {seen['sum']} on the GPU", MAKE_ENV)
    names = ", ".join(sorted(set(seen["names"])))
    text = f"{seen['devices']} x {names}, CuPy {seen['cupy']}: the GPU level"
    return [Finding("GPU", "good", text), nccl(machine, seen), torch(machine)]


def nccl(machine: Machine, seen: dict) -> Finding:
    """CuPy says which one it loads; PyTorch's wheel names its own as a package."""
    if not seen["nccl"]:
        advice = "Several GPUs need it: pip install nvidia-nccl-cu12"
        return Finding("NCCL", "warn", seen.get("nccl_error", "not there"), advice)
    number = int(seen["nccl"])
    text = f"CuPy: {number // 10000}.{number // 100 % 100}.{number % 100}"
    cuda = _torch_cuda(machine).split(".")[0]
    package = machine.version(f"nvidia-nccl-cu{cuda}") if cuda else None
    return Finding("NCCL", "good", text + (f", PyTorch: {package}" if package else ""))


def torch(machine: Machine) -> Finding:
    cuda = _torch_cuda(machine)
    if cuda:
        return Finding("PyTorch", "good", f"{machine.version('torch')}, for CUDA {cuda}")
    seen = f"{machine.version('torch')}, for CPUs only"
    pinned = "pip install --force-reinstall torch==2.13.0"
    return Finding("PyTorch", "warn", seen, f"Its parts of labs 3 and 4 stay on the CPU: {pinned}")
