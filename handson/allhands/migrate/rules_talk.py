"""Faults of talking: collectives that not all ranks call, and how the ranks find each other."""

import re
from collections.abc import Iterator

from allhands.migrate import naming
from allhands.migrate.facts import Call, Condition, Facts, Setting
from allhands.migrate.rule import Rule, Spot, asks_for_ranks, at, begun_elsewhere, first

ENVIRONMENT = re.compile(r"^env://")
REMOVED = {"hierarchical", "two_dimensional", "single_node"}
BUG2 = "notebook bug2_singlegpu"
COLLECTIVE_EXTENSIONS = (
    "create_multi_node_evaluator",
    "create_multi_node_checkpointer",
    "AllreducePersistent",
)


def is_collective(call: Call) -> bool:
    """Whether all ranks of the whole world must come to this call."""
    grouped = "group" in call.keywords or any("group" in value.text for value in call.args)
    if grouped or call.expects_error:
        return False
    if call.short == "state_dict" and call.receiver is not None:  # FSDP gathers it from all
        sharded = call.receiver.made_by("FullyShardedDataParallel")
        return sharded and not call.receiver.text.endswith(".module")
    if call.of(naming.TORCH_DISTRIBUTED):
        return call.short in naming.TORCH_COLLECTIVES and call.name.count(".") <= 3
    if call.of(naming.HOROVOD):
        return call.short in naming.HOROVOD_COLLECTIVES
    if call.short in naming.CHAINERMN_COLLECTIVES and call.of("chainermn"):
        return True
    owner = call.receiver
    if call.short in naming.COMM_COLLECTIVES and (owner is not None or call.of("mpi4py")):
        if owner is not None and owner.made_by(*naming.SUBGROUPS):
            return False
        if call.of("mpi4py.MPI.COMM_WORLD"):
            return True
        return owner is not None and (
            owner.made_by("create_communicator")
            or bool(naming.COMMUNICATOR.search(owner.text) and not naming.PART.search(owner.text))
            or owner.text.endswith("comm.mpi_comm")
        )
    if call.short == "extend" and owner is not None and not call.keywords.get("x"):
        return call.arg(0).made_by(*COLLECTIVE_EXTENSIONS)
    return False


def key_of(call: Call) -> str:
    """Under which name a call meets its partner on the other ranks."""
    return call.short.lower()


def ranked_conditions(call: Call) -> list[Condition]:
    """The conditions of a call that some ranks pass and others do not."""
    return [each for each in call.conditions if each.ranks not in ("", "perhaps")]


def on_some_ranks(facts: Facts, leaves: bool) -> Iterator[Spot]:
    """Collectives that the rank decides about, without a partner for the other ranks.

    A partner is the same collective in the same function, outside this branch, on other ranks.
    """
    mine = [c for c in facts.calls if is_collective(c) and ranked_conditions(c)]
    for call in mine:
        own = ranked_conditions(call)
        if any(each.leaves for each in own) != leaves:
            continue
        last = own[-1]
        partners = [
            other
            for other in mine
            if key_of(other) == key_of(call) and last not in other.conditions
            if last.ranks == "some"
            or _on_the_other_side(last, other)
            or (
                other.function == call.function and ranked_conditions(other)[-1].ranks != last.ranks
            )
        ]
        if not partners:
            where = f"line {last.line}: {last.text}"
            yield at(call, f"ranks leave in {where}" if leaves else where)


def _on_the_other_side(condition: Condition, other: Call) -> bool:
    """Whether a call stands in the other branch of the same condition, in whichever function."""
    return any(
        each.line == condition.line and each.branch != condition.branch
        for each in ranked_conditions(other)
    )


def inside(facts: Facts) -> Iterator[Spot]:
    """A collective under a condition on the rank."""
    yield from on_some_ranks(facts, leaves=False)


def after_leaving(facts: Facts) -> Iterator[Spot]:
    """A collective that some ranks never reach."""
    yield from on_some_ranks(facts, leaves=True)


def hard_coded(facts: Facts) -> Iterator[Spot]:
    """Rank or world size as a number in the program."""
    for call in facts.find("init_process_group"):
        if asks_for_ranks(call):
            continue
        for name, position in (("rank", 4), ("world_size", 3)):
            if call.arg(0, "backend").const == "fake":
                break
            number = call.arg(position, name).const
            least = 0 if name == "rank" else 2  # a world of one is no mistake
            if name == "world_size" and facts.mentioned("spawn", "start_processes"):
                break  # the program starts so many itself
            if isinstance(number, int) and number >= least and call.reached:
                yield at(call, f"{name}={number}")
                break


def fixed_port(facts: Facts) -> Iterator[Spot]:
    """A port that stands in the program."""
    for setting in facts.settings:
        if setting.name == "MASTER_PORT" and setting.value.known and not _asked(setting):
            yield at(setting, f"port {setting.value.const}")
    for call in facts.find("init_process_group"):
        method = call.arg(1, "init_method").const
        method = method if isinstance(method, str) else call.arg(1, "init_method").text
        found = re.match(r"tcp://[^:]+:(\d+)$", method)
        if found and found[1] != "0":
            yield at(call, f"port {found[1]}")


def fixed_address(facts: Facts) -> Iterator[Spot]:
    """An address that only one machine reaches."""
    for setting in facts.settings:
        here = setting.value.const in ("localhost", "127.0.0.1")
        if setting.name == "MASTER_ADDR" and here and not _asked(setting):
            yield at(setting)


def _asked(setting: Setting) -> bool:
    """Whether the program has looked at the environment before it sets this."""
    return any("environ" in each.text for each in setting.conditions)


def init_missing(facts: Facts) -> Iterator[Spot]:
    """torch.distributed is used, and nobody has made the group."""
    if facts.mentioned("init_process_group", "init_device_mesh", "init_rpc", "fully_shard"):
        return
    if begun_elsewhere(facts):
        return
    for call in facts.find(*naming.DDP, reached=True):
        if facts.has_main:
            yield at(call)
            return


def before_init(facts: Facts) -> Iterator[Spot]:
    """The group is asked before it is made."""
    made = [call for call in facts.find("init_process_group") if call.reached]
    if not made:
        return
    for call in facts.calls:
        early = call.reached and call.order < made[0].order and call.of(naming.TORCH_DISTRIBUTED)
        asks = is_collective(call) or call.short in ("get_rank", "get_world_size")
        careful = any("initialized" in c.text or "available" in c.text for c in call.conditions)
        if early and asks and not careful and call.together(made[0]):
            yield at(call, f"init_process_group stands in line {made[0].line}")
            return


def no_end(facts: Facts) -> Iterator[Spot]:
    """The group is never taken down."""
    if facts.mentioned("destroy_process_group", "cleanup", "abort_process_group"):
        return
    yield from first(at(call) for call in facts.find("init_process_group", reached=True))


def no_hook(facts: Facts) -> Iterator[Spot]:
    """One rank fails, and the others wait for ever."""
    if facts.mentioned(
        *("global_except_hook", "excepthook", "Abort", "end_job_on_error", "add_hook"),
        *("CHAINERMN_FORCE_ABORT_ON_EXCEPTION", "_add_hook", "_add_hook_if_enabled"),
    ):
        return
    if any(setting.name == "CHAINERMN_FORCE_ABORT_ON_EXCEPTION" for setting in facts.settings):
        return
    yield from first(at(call) for call in facts.find("create_communicator", reached=True))


def removed(facts: Facts) -> Iterator[Spot]:
    """Communicators of older ChainerMN."""
    for call in facts.find("create_communicator"):
        name = call.arg(0, "communicator_name").const
        if isinstance(name, str) and name in REMOVED:
            yield at(call, f"'{name}'")


TALK = (
    Rule(
        "collective-on-some-ranks",
        "sure",
        "all",
        "A collective inside a condition on the rank",
        "A collective returns when all ranks have called it. Here only some do: they wait for "
        "ever, or meet the others' next call and fail with a strange message.",
        "Let all ranks call it; only what is done with the result may depend on the rank.",
        BUG2 + "; notebook bug1_errorcount",
        inside,
    ),
    Rule(
        "ranks-leave-early",
        "sure",
        "all",
        "Some ranks leave before a collective",
        "A return, break or continue that depends on the rank stands before a collective: who "
        "stays waits for those who have left.",
        "Let all ranks go on to the collective, or move it before the branch.",
        BUG2,
        after_leaving,
    ),
    Rule(
        "rank-hard-coded",
        "sure",
        "torch",
        "Rank or world size is a number in the program",
        "Every process gives the same number: they wait for ranks that never come.",
        "Start with torchrun and leave both away, or read RANK and WORLD_SIZE.",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        hard_coded,
    ),
    Rule(
        "fixed-port",
        "likely",
        "torch",
        "The port stands in the program",
        "Two jobs on one node cannot have the same port; the second ends with 'address already in "
        "use'. And it overrides what torchrun has chosen.",
        "Start with torchrun, which sets MASTER_PORT; or os.environ.setdefault.",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        fixed_port,
    ),
    Rule(
        "fixed-address",
        "look",
        "torch",
        "The ranks meet on this machine only",
        "With MASTER_ADDR=localhost each node waits for ranks of its own; two nodes never meet.",
        "Start with torchrun, or take the first node of the job: os.environ.setdefault.",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        fixed_address,
    ),
    Rule(
        "init-missing",
        "likely",
        "torch",
        "DDP without a process group",
        "DistributedDataParallel needs init_process_group before it, on every rank.",
        "torch.distributed.init_process_group('nccl') (CPU: 'gloo'), in the first lines of main().",
        "https://docs.pytorch.org/docs/stable/distributed.html",
        init_missing,
    ),
    Rule(
        "before-init",
        "sure",
        "torch",
        "The process group is asked before it is made",
        "'Default process group has not been initialized', on every rank.",
        "init_process_group first; before it only the environment knows the rank.",
        "https://docs.pytorch.org/docs/stable/distributed.html",
        before_init,
    ),
    Rule(
        "communicator-removed",
        "sure",
        "chainer",
        "This communicator is no longer in ChainerMN",
        "ChainerMN 7 raises ValueError: Unrecognized communicator.",
        "'pure_nccl' on GPUs, 'naive' on CPUs.",
        "https://docs.chainer.org/en/stable/chainermn/reference/index.html",
        removed,
    ),
    Rule(
        "no-destroy",
        "look",
        "torch",
        "The process group is never taken down",
        "NCCL warns at the end, and a rank that ends early may leave the others waiting.",
        "torch.distributed.destroy_process_group() in a finally block.",
        "https://docs.pytorch.org/docs/stable/distributed.html",
        no_end,
    ),
    Rule(
        "no-except-hook",
        "look",
        "chainer",
        "An error on one rank leaves the others waiting",
        "A rank that ends with an exception does not end the job: the others wait in the next "
        "collective until the time limit.",
        "import chainermn.global_except_hook as hook; hook._add_hook(), or start with "
        "`python -m mpi4py SCRIPT`.",
        "notebook bug1_errorcount",
        no_hook,
    ),
)
