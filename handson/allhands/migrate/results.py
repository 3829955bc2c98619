"""What does a call give back? What is known of it by its name, its arguments and its receiver.

`expressions.py` asks here when it has followed the call, if it is one of the script's own.
"""

from __future__ import annotations

from dataclasses import replace

from allhands.migrate import naming
from allhands.migrate.facts import NOTHING, UNKNOWN, Call, Value
from allhands.migrate.meaning import as_test, of_variable

SAME_THING = {  # methods that give back what they were called on
    *("to", "cuda", "cpu", "half", "float", "double", "train", "eval", "to_gpu", "to_cpu"),
    *("to_device", "to_chx", "requires_grad_", "apply", "compile", "bfloat16"),
    *("clone", "detach", "contiguous"),
}


def result_of(call: Call, returned: Value, instance: str) -> Value:
    """What a call gives back.

    returned: what the script's own function returns, if it is one. instance: the class of the
    script in which the call stands, or "".
    """
    short, receiver = call.short, call.receiver or NOTHING
    text = call.name
    if text == "super":
        return Value(instance=instance, text="super()")
    named = naming.FIRST_TEST.search(short) and short.startswith(("is_", "am_", "_is"))
    if named and not as_test(returned):
        return Value(origins=(call,), test="first")
    if returned is not NOTHING:
        return replace(returned, origins=(*returned.origins, call)[-8:], text="")
    if short in ("get_rank", "rank", "Get_rank") or text.endswith("process_index"):
        return Value(origins=(call,), rank="world")
    if short in ("local_rank", "get_local_rank", "get_node_local_rank"):
        return Value(origins=(call,), rank="local")
    if short in ("get_world_size", "Get_size") or (
        short in ("size", "local_size") and call.of(naming.HOROVOD)
    ):
        return Value(origins=(call,), size=True)
    if text in ("os.getenv", "os.environ.get", "environ.get"):
        return of_variable(call.arg(0).const)
    if short in ("int", "str", "float", "min", "max", "abs", "format"):
        rank = next((value.rank for value in call.values if value.rank), "")
        size = any(value.size for value in call.values)
        const = call.arg(0).const if short in ("int", "str") else UNKNOWN
        return Value(origins=(call,), const=const, rank=rank, size=size)
    rank = next((v.rank for v in (*call.values, receiver) if v.rank), "")
    if short not in ("device", "Device"):
        rank = rank and "some"
    asks = any(v.made_by("create_communicator") or _is_comm(v) for v in call.values)
    ratio = short in ("tensor", "as_tensor", "array", "asarray", "item", "float") and any(
        value.ratio for value in (*call.args, receiver)
    )
    if short in SAME_THING and receiver is not NOTHING:
        return replace(receiver, origins=(*receiver.origins, call)[-8:], text=receiver.text)
    return Value(origins=(call,), rank=rank, ratio=ratio, test="perhaps" if asks else "")


def _is_comm(value: Value) -> bool:
    return bool(naming.COMMUNICATOR.search(value.text))
