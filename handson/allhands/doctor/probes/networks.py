"""Does this host know itself, and are the network and the ports there that ranks need?"""

import re

from allhands.doctor.finding import Finding
from allhands.doctor.machine import Interface, Machine, Network
from allhands.doctor.probes.jobs import several_hosts

# Who reads a variable with the name of an interface.
CHOSEN = {
    "ALLHANDS_NETWORK": "the site file",
    "GLOO_SOCKET_IFNAME": "PyTorch's gloo",
    "OMPI_MCA_btl_tcp_if_include": "Open MPI",
    "FI_TCP_IFACE": "MPICH",
    "NCCL_SOCKET_IFNAME": "NCCL",
}
JOB_PORTS = (20000, 31999)  # where job scripts put MASTER_PORT (cluster_jobs/lib/run.sh)


def network(machine: Machine) -> list[Finding]:
    seen = machine.network(*JOB_PORTS)
    if seen.error:
        advice = "Does a name server not answer? Look at /etc/resolv.conf and /etc/hosts."
        return [Finding("network", "warn", f"could not be looked at: {seen.error}", advice)]
    found = [*loopback(seen), *host_name(seen, several_hosts(machine))]
    return [*found, *interfaces(machine, seen), *ports(machine, seen)]


def loopback(seen: Network) -> list[Finding]:
    if seen.loopback_error:
        advice = "JupyterLab and torchrun need it. As root: ip link set lo up"
        text = f"127.0.0.1 does not answer: {seen.loopback_error}"
        return [Finding("loopback", "bad", text, advice, blocks="simulated")]
    return [Finding("loopback", "good", "127.0.0.1 answers")]


def host_name(seen: Network, several: bool) -> list[Finding]:
    """A name that leads nowhere makes torchrun and some MPIs wait for a minute, then fail."""
    line = f'echo "{_own_address(seen)} {seen.name}" >> /etc/hosts'
    mend = f"As root: {line}"
    without = (
        "Ranks that labs start here do not need it; torchrun of your own: --local-addr=localhost"
    )
    blocks = "cpu" if several else ""
    if not seen.addresses:
        text = f"'{seen.name}' has no address: {seen.name_error}"
        return [Finding("host name", "warn", text, f"{mend}. {without}", blocks=blocks)]
    shown = ", ".join(seen.addresses[:3])
    if not seen.bindable:
        if seen.loopback_error and all(one.startswith("127.") for one in seen.addresses):
            return []  # the loopback is what is missing
        text = f"'{seen.name}' is {shown}, which is no address of this host"
        advice = f"As root: mend the line of '{seen.name}' in /etc/hosts: {_own_address(seen)}"
        return [Finding("host name", "warn", text, advice, blocks=blocks)]
    if several and all(one.startswith("127.") or one == "::1" for one in seen.addresses):
        text = f"'{seen.name}' is {shown}: other hosts of the job cannot reach it there"
        return [Finding("host name", "warn", text, f"Ask who runs the nodes. {mend}")]
    return [Finding("host name", "good", f"'{seen.name}' is {shown}")]


def _own_address(seen: Network) -> str:
    outside = [one.address for one in seen.interfaces if one.address and not one.loopback]
    return outside[0] if outside else "127.0.1.1"


def interfaces(machine: Machine, seen: Network) -> list[Finding]:
    """All that are up; and the one that somebody has chosen is there, is up, and has an address."""
    shown = [_shown(one) for one in seen.interfaces if one.up and not one.loopback]
    text = ", ".join(shown) or "none but the loopback"
    there = ", ".join(one.name for one in seen.interfaces)
    for variable, reader in CHOSEN.items():
        value = machine.environ.get(variable, "")
        if not value or value.startswith("^") or "/" in value:
            continue
        found = [one for one in seen.interfaces if _names(variable, value, one)]
        wrong = "is not on this host" if not found else ""
        if found and not any(one.up for one in found):
            wrong = "is down"
        elif found and not any(one.address or one.infiniband for one in found):
            wrong = "has no address"
        if wrong:
            advice = f"{reader[0].upper()}{reader[1:]} reads it. On this host there are: {there}. "
            advice += f"As root: ip link set {value} up. " if wrong == "is down" else ""
            advice += f"Mend ALLHANDS_NETWORK in the site file, or: unset {variable}"
            text = f"{variable}={value}, but {value} {wrong}"
            return [Finding("interfaces", "bad", text, advice, blocks="cpu")]
        text += f"; {variable}={value}" if variable == "ALLHANDS_NETWORK" else ""
    soft, _ = machine.limit("memlock")
    if soft is not None and soft < 2**26 and any(one.infiniband for one in seen.interfaces):
        text += f"; locked memory: at most {soft // 1024:,} KiB"
        advice = "InfiniBand wants it unlimited: ulimit -l unlimited, or ask who runs this machine."
        return [Finding("interfaces", "warn", text, advice)]
    return [Finding("interfaces", "good", text)]


def _names(variable: str, value: str, one: Interface) -> bool:
    """NCCL takes beginnings of names, and exact ones after "="; the others take exact names."""
    exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
    names = value.lstrip("=").split(",")
    return one.name in names if exact else one.name.startswith(tuple(names))


def _shown(one: Interface) -> str:
    speed = ""
    if one.mbit_s > 0:
        speed = f" {one.mbit_s / 1000:g} Gbit/s" if one.mbit_s >= 1000 else f" {one.mbit_s} Mbit/s"
    kind = " InfiniBand" if one.infiniband else ""
    return f"{one.name}{kind} {one.address or 'without address'}{speed}"


def ports(machine: Machine, seen: Network) -> list[Finding]:
    """Two ports at once from the system's range, and those that job scripts choose from."""
    if seen.loopback_error:
        return []
    limits = re.findall(r"\d+", machine.text("/proc/sys/net/ipv4/ip_local_port_range"))
    own = "-".join(limits) if len(limits) == 2 else "the system's range"
    if seen.ports_error:
        text = f"no two ports are free in {own}: {seen.ports_error}"
        advice = (
            "End programs that hold them (ss -tanp), or widen the range, as root: "
            "echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range"
        )
        return [Finding("ports", "bad", text, advice, blocks="simulated")]
    if seen.range_free == 0:
        text = f"none of {JOB_PORTS[0]}-{JOB_PORTS[0] + 99} is free"
        advice = "Job scripts take MASTER_PORT from there: export MASTER_PORT=..., a free one."
        return [Finding("ports", "warn", text, advice)]
    return [Finding("ports", "good", f"free ones in {own}, and for jobs from {JOB_PORTS[0]} on")]
