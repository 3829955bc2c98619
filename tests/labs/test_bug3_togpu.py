"""Lab bug3: checks refuse likely mistakes with the sentence meant for them, and take repairs."""

import ast
import inspect
import os
import textwrap

import chainer
import numpy as np
import pytest

from allhands.grade.convert import _REGION, given_instead
from allhands.grade.desk import Desk
from allhands.grade.source import solved_notebook
from allhands.train import on_gpus
from allhands.train.faults.readings import readings


def both(name):
    return readings(f"bug3_togpu:{name}")


@pytest.fixture
def desk() -> Desk:
    return Desk("bug3_togpu")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- births ---------------------------------------------------------------------------------------

RIGHT = {"a": 0, "b": 2, "c": 1, "d": 1, "e": 1, "f": 2}


def test_births_takes_the_right_prediction(desk):
    assert desk.check("births", RIGHT).full


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"a": 2}, "nobody has chosen a device yet"),
        ({"c": 2}, "inside the `with` block device 1 is current"),
        ({"d": 2}, "a copy is a new array"),
        ({"e": 2}, "a slice is a view of `c`"),
        ({"f": 0}, "takes shape and type from `a`, and not its place"),
        ({"f": 1}, "behind the `with` block"),
    ],
)
def test_births_refuses(desk, wrong, sentence):
    verdict = desk.check("births", RIGHT | wrong)
    refused(verdict, sentence)
    assert verdict.score == 1  # the other half is right


def test_births_wants_numbers(desk):
    for wrong in (str, "@cupy:{}".format):
        names = {name: wrong(device) for name, device in RIGHT.items()}
        refused(desk.check("births", names), "2, and not '2'")


def test_births_wants_all_six(desk):
    refused(desk.check("births", {"a": 0}), "a device number for each of a, b, c, d, e, f")


# --- where_is -------------------------------------------------------------------------------------


def only_parameters(model):
    return {
        path: chainer.backend.get_device_from_array(param.array).name
        for path, param in model.namedparams()
        if param.array is not None
    }


def where_the_link_was_sent(model):
    return {
        f"{path.rstrip('/')}/{name}": link.device.name
        for path, link in model.namedlinks()
        for name, thing in vars(link).items()
        if isinstance(getattr(thing, "array", thing), chainer.get_array_types())
    }


def without_the_links_inside(model):
    return {
        f"/{name}": chainer.backend.get_device_from_array(thing.array).name
        for name, thing in vars(model).items()
        if isinstance(thing, chainer.Parameter) and thing.array is not None
    }


def two_slashes(model):
    return {name.replace("/", "//", 1): place for name, place in on_gpus.where_is(model).items()}


def device_objects(model):
    return {name: chainer.get_device(place) for name, place in on_gpus.where_is(model).items()}


def empty_parameters_too(model):
    return on_gpus.where_is(model) | {
        path: param.device.name for path, param in model.namedparams() if param.array is None
    }


@pytest.mark.parametrize(
    ("answer", "points", "sentence"),
    [
        (only_parameters, 2, "a plain attribute is an array of the model as well"),
        (where_the_link_was_sent, 1, "`link.device` says where the link was sent last"),
        (without_the_links_inside, 0, "go through `model.namedlinks()`"),
        (two_slashes, 0, 'The model itself has the path "/"'),
        (device_objects, 1, "a device has a `.name`"),
        (empty_parameters_too, 2, "/lazy/W has no array yet"),
        (lambda model: list(on_gpus.where_is(model)), 0, "a dict: path of an array"),
    ],
)
def test_where_is_refuses(desk, answer, points, sentence):
    verdict = desk.check("where_is", answer)
    refused(verdict, sentence)
    assert verdict.score == points


def test_where_is_takes_the_package_s(desk):
    assert desk.check("where_is", on_gpus.where_is).full


# --- the repairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["first_lines", "scaled", "twice", "choose"])
def test_a_repair_gets_all_points_and_the_fault_none(desk, name):
    assert desk.check(name, both(name).repaired).full
    assert desk.check(name, both(name).faulty).score == 0


def by_rank(comm, cupy):
    return _lines(f"@cupy:{comm.rank}", cupy)


def by_rank_modulo(comm, cupy):
    return _lines(f"@cupy:{comm.rank % cupy.cuda.runtime.getDeviceCount()}", cupy)


def raises_something_else(comm, cupy):
    raise KeyError("x")


def nobody_chooses(comm, cupy):
    return both("unchosen").faulty(comm, cupy)


def on_the_cpu(comm, cupy):
    model, x = chainer.links.Linear(4, 2), np.ones((8, 4), "f")
    return {"model": model, "x": x, "y": model(x)}


def nothing_returned(comm, cupy):
    _lines(f"@cupy:{comm.intra_rank}", cupy)
    return 5


def _lines(specifier, cupy):
    device = chainer.get_device(specifier)
    device.use()
    model = chainer.links.Linear(4, 2).to_device(device)
    x = cupy.ones((8, 4), dtype="float32")
    return {"model": model, "x": x, "y": model(x)}


@pytest.mark.parametrize(
    ("answer", "points", "sentence"),
    [
        (both("first_lines").faulty, 0, "Choose first, then make"),
        (by_rank, 1, "counted by `comm.intra_rank`, and not by `comm.rank`"),
        (by_rank_modulo, 1, "not on GPU 0, 1, 2, 3 in this order"),
        (raises_something_else, 0, "just above the line that fails"),
        (nobody_chooses, 0, "all ranks are on GPU 0"),
        (on_the_cpu, 0, "that runs on the CPU"),
        (nothing_returned, 0, "a dict with model, x, y"),
    ],
)
def test_first_lines_refuses(desk, answer, points, sentence):
    verdict = desk.check("first_lines", answer)
    refused(verdict, sentence)
    assert verdict.score == points


def scaled_by(prepare, use):
    """The model of `scaled`, with its constant made and used in another way."""

    class Scaled(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.linear = chainer.links.Linear(4, 2)
            prepare(self)

        def forward(self, x):
            return use(self, self.linear(x))

    def program(comm, cupy):
        device = chainer.get_device(f"@cupy:{comm.intra_rank}")
        device.use()
        model = Scaled()
        model.to_device(device)
        return {"model": model, "y": model(cupy.ones((8, 4), dtype="float32"))}

    return program


def plain(model):
    model.scale = np.array([[1, 10]], "f")


def made_on_the_gpu(model):
    model.scale = chainer.backends.cuda.to_gpu(np.array([[1, 10]], "f"))


def a_parameter(model):
    with model.init_scope():
        model.scale = chainer.Parameter(np.array([[1, 10]], "f"))


def sent_each_time(model, y):
    return y * chainer.functions.broadcast_to(model.device.send(model.scale), y.shape)


def times_scale(model, y):
    return y * chainer.functions.broadcast_to(model.scale, y.shape)


@pytest.mark.parametrize(
    ("answer", "points", "sentence"),
    [
        (scaled_by(plain, times_scale), 0, "which of the two is on the CPU?"),
        (scaled_by(plain, sent_each_time), 0, "`scale` stays on the CPU and is sent in each step"),
        (scaled_by(made_on_the_gpu, times_scale), 1, "an array that was made on the GPU stays"),
        (scaled_by(a_parameter, times_scale), 1, "the optimizer would change scale"),
        (scaled_by(lambda model: None, lambda model, y: y), 1, "scale must stay in the product"),
    ],
)
def test_scaled_refuses(desk, answer, points, sentence):
    verdict = desk.check("scaled", answer)
    refused(verdict, sentence)
    assert verdict.score == points


def without_the_second_move(comm, cupy):
    model = chainer.links.Linear(4, 2)
    model.to_gpu()
    chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    return {"model": model, "y": model(cupy.ones((8, 4), dtype="float32"))}


def chosen_before_build(comm, cupy):
    chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    model = chainer.links.Linear(4, 2)
    model.to_gpu()
    model.to_gpu(comm.intra_rank)
    return {"model": model, "y": model(cupy.ones((8, 4), dtype="float32"))}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (both("twice").faulty, "read the warning"),
        (without_the_second_move, "`build` has put the model on GPU 0"),
    ],
)
def test_twice_refuses(desk, answer, sentence):
    refused(desk.check("twice", answer), sentence)


def test_twice_takes_the_choice_before_build_too(desk):
    assert desk.check("twice", chosen_before_build).full


def always_0(comm, cupy):
    cupy.cuda.Device(0).use()
    return {"x": cupy.zeros(4)}


def own_or_0(comm, cupy):
    several = cupy.cuda.runtime.getDeviceCount() > 1
    cupy.cuda.Device(comm.intra_rank if several else 0).use()
    return {"x": cupy.zeros(4)}


def large(comm, cupy):
    cupy.cuda.Device(comm.intra_rank % cupy.cuda.runtime.getDeviceCount()).use()
    return {"x": cupy.zeros(1000)}


def rank_modulo(comm, cupy):
    cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
    return {"x": cupy.zeros(4)}


def rank_or_0(comm, cupy):
    several = cupy.cuda.runtime.getDeviceCount() > 1
    cupy.cuda.Device(comm.rank if several else 0).use()
    return {"x": cupy.zeros(4)}


def first_of_the_list(comm, cupy):
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = int(listed.split(",")[comm.intra_rank]) if listed and "," in listed else None
    if number is None:
        number = comm.intra_rank if listed is None else 0
    cupy.cuda.Device(number).use()
    return {"x": cupy.zeros(4)}


def born_too_early(comm, cupy):
    x = cupy.zeros(4)
    cupy.cuda.Device(comm.intra_rank % cupy.cuda.runtime.getDeviceCount()).use()
    return {"x": x}


@pytest.mark.parametrize(
    ("answer", "points", "sentence"),
    [
        (both("choose").faulty, 0, "a rank that sees one GPU has a GPU 0 and no other"),
        (rank_modulo, 1, "counted by `comm.intra_rank`, and not by `comm.rank`"),
        (rank_or_0, 1, "counted by `comm.intra_rank`, and not by `comm.rank`"),
        (always_0, 1, "always GPU 0: where all ranks see all GPUs"),
        (first_of_the_list, 1, "for them these are GPU 0 and GPU 1"),
        (born_too_early, 1, "always GPU 0"),
    ],
)
def test_choose_refuses(desk, answer, points, sentence):
    verdict = desk.check("choose", answer)
    refused(verdict, sentence)
    assert verdict.score == points


def test_choose_takes_another_way_too(desk):
    assert desk.check("choose", own_or_0).full
    assert desk.check("choose", large).full


def test_the_explanation_answers_each_wrong_choice(desk):
    exercise = desk.lab.exercise("count")
    assert desk.check("count", "b").full
    for letter in "acd":
        refused(desk.check("count", letter), exercise.replies[letter])


@pytest.mark.parametrize("name", ["first_lines", "scaled", "twice", "choose"])
def test_the_participant_is_given_the_fault_that_is_measured(name):
    cell = next(each for each in solved_notebook("bug3_togpu").cells if each.id == name)
    given = textwrap.dedent(_REGION.sub(lambda region: given_instead(region[0]), cell.source))
    faulty = inspect.getsource(both(name).faulty)
    assert ast.dump(ast.parse(given)) == ast.dump(ast.parse(faulty))
