"""Which questions describe a site, and what is the likely answer to each? The questions are data.

An answer has the name of the site file's value, without the prefix ALLHANDS_. TEMPLATE is the site
file that is nearest, of which a copy is made; what is not asked stays as it is there.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from allhands.sites.detect import Queue, Seen
from allhands.sites.folder import PREFIX, Jobs

NONE = "-"  # what one types to make a value empty that has a default
Answers = Mapping[str, str]


@dataclass(frozen=True)
class Context:
    """What a default is made of: what was seen, the answers so far, the template's values."""

    seen: Seen
    answers: Answers
    template: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)  # scheduler of each site file
    account_options: Sequence[str] = ()  # those of the site files with this scheduler

    @property
    def queue(self) -> Queue:
        return self.seen.queues.get(self.answers.get("QUEUE", ""), Queue(""))

    def value(self, name: str) -> str:
        """The answer if there is one already, else what the template says."""
        return self.answers.get(name, self.template.get(name, ""))


@dataclass(frozen=True)
class Question:
    """One question. form: a regular expression that every answer must match.

    default: the likely answer; choices: others that are known (more may be typed); listed: the
    choices are all that the site has; asked: whether the question makes sense at all after the
    answers so far.
    """

    name: str
    text: str
    default: Callable[[Context], str] = lambda context: ""
    choices: Callable[[Context], Sequence[str]] = lambda context: ()
    asked: Callable[[Context], bool] = lambda context: True
    form: str = r".*"
    like: str = ""  # an example of the form, for the sentence
    listed: bool = False

    def refusal(self, answer: str) -> str:
        """Why the answer cannot be; "" if it can."""
        if not re.fullmatch(self.form, answer):
            return f"{self.name} was given as '{answer}'. Write it like {self.like}."
        if re.search('["`\\\\\n]', answer):
            return f"{self.name} was given as '{answer}'. Leave out quotes and backslashes."
        return ""

    def doubt(self, answer: str, choices: Sequence[str]) -> str:
        """Why the answer may be a slip; "" if nothing speaks against it."""
        names = [name.partition("@")[0] for name in answer.split(",") if name]
        unknown = [name for name in names if name not in choices]
        if not (self.listed and choices and unknown):
            return ""
        return f"The scheduler lists no {', '.join(unknown)}. Give the same again to keep it."


def template_default(context: Context) -> str:
    """The generic file of this scheduler, else the first one that has it."""
    fitting = [name for name, of in context.templates.items() if of == context.seen.scheduler]
    generic = [name for name in fitting if name.endswith("-generic")]
    return "local" if "local" in fitting else (generic or fitting or ["local"])[0]


def queue_default(context: Context) -> str:
    own, queues = context.template.get("QUEUE", ""), context.seen.queues
    if own and (own in queues or not queues):
        return own
    with_gpus = [queue.name for queue in queues.values() if queue.gpus]
    default = context.seen.default_queue
    if with_gpus and default not in with_gpus:
        return with_gpus[0]
    return default or next(iter(queues), "")


def account_option_default(context: Context) -> str:
    """The template's; empty on a Slurm that answers and knows no account of this user."""
    no_accounts = context.template.get("SCHEDULER") == "slurm" and bool(context.seen.queues)
    if no_accounts and not context.seen.accounts:
        return ""
    return context.template.get("ACCOUNT_OPTION", "")


def account_default(context: Context) -> str:
    known = context.seen.accounts
    return context.template.get("ACCOUNT") or (known[0] if len(known) == 1 else "")


def level_default(context: Context) -> str:
    if context.answers.get("QUEUE") in context.seen.queues and not context.queue.gpus:
        return "cpu" if any(queue.gpus for queue in context.seen.queues.values()) else "gpu"
    return context.template.get("LEVEL", "gpu")


def launcher_default(context: Context) -> str:
    """The template's; for Open MPI under Slurm srun, if that has pmix."""
    fits = context.seen.mpi == "openmpi" and "pmix" in context.seen.mpi_types
    if context.template.get("SCHEDULER") == "slurm" and fits:
        return "srun --mpi=pmix"
    return context.template.get("LAUNCHER", "")


def kept(name: str) -> Callable[[Context], str]:
    """The default is what the template says."""
    return lambda context: context.template.get(name, "")


def has_scheduler(context: Context) -> bool:
    return context.template.get("SCHEDULER") != "none"


def at_gpu(context: Context) -> bool:
    return has_scheduler(context) and context.value("LEVEL") == "gpu"


TEMPLATE = Question(
    "TEMPLATE",
    "Which site file is nearest to your site? A copy of it is made.",
    template_default,
)
NAME = Question(
    "The name",
    "A short name for the file",
    form=r"(my_)?[A-Za-z0-9][\w-]*(\.env)?",
    like="our-cluster",
)
QUESTIONS = (
    Question(
        "QUEUE",
        "Queue (partition, resource group) for the jobs",
        queue_default,
        lambda context: list(context.seen.queues),
        lambda context: has_scheduler(context) and bool(context.value("QUEUE_OPTION")),
        r"[\w.@,-]*",
        "gpu",
        listed=True,
    ),
    Question(
        "ACCOUNT_OPTION",
        "Option for the account or group; {} stands for it. None: -",
        account_option_default,
        lambda context: context.account_options,
        has_scheduler,
        r"(-.*\{\}.*)?",
        "-option {}",
    ),
    Question(
        "ACCOUNT",
        "Account or group that pays",
        account_default,
        lambda context: context.seen.accounts,
        lambda context: has_scheduler(context) and bool(context.value("ACCOUNT_OPTION")),
        r"[\w.@-]*",
        "gr01",
    ),
    Question(
        "LEVEL",
        "What the labs train on: gpu or cpu",
        level_default,
        lambda context: ("gpu", "cpu"),
        form="gpu|cpu",
        like="gpu",
    ),
    Question(
        "GPUS_PER_NODE",
        "GPUs in a node",
        lambda context: str(context.queue.gpus or context.template.get("GPUS_PER_NODE", "")),
        asked=at_gpu,
        form=r"\d*",
        like="4",
    ),
    Question(
        "GPU_OPTION",
        "How a job asks for GPUs. None: -",
        kept("GPU_OPTION"),
        asked=lambda context: at_gpu(context) and not context.template.get("SHAPE_OPTION"),
    ),
    Question(
        "NODES_MAX",
        "Most nodes of a job. Not known: -",
        lambda context: context.template.get("NODES_MAX") or str(context.queue.nodes or ""),
        asked=has_scheduler,
        form=r"\d*",
        like="4",
    ),
    Question(
        "TIME_MAX",
        "Longest time of a job. Not known: -",
        lambda context: context.template.get("TIME_MAX") or context.queue.time,
        asked=has_scheduler,
        form=r"(\d+:[0-5]\d:[0-5]\d)?",
        like="24:00:00",
    ),
    Question(
        "MODULES",
        "Modules that a job loads, in this order. None: -",
        kept("MODULES"),
        lambda context: context.seen.modules[:12],
    ),
    Question(
        "CONDA_ENV",
        "conda environment; none, for .venv of the project: -",
        lambda context: context.template.get("CONDA_ENV") or context.seen.conda,
    ),
    Question("CONTAINER", "Container command in front of every rank. None: -", kept("CONTAINER")),
    Question("LAUNCHER", "What starts several ranks", launcher_default),
    Question(
        "NETWORK",
        "Fast network interface of the compute nodes. Not known: -",
        lambda context: context.template.get("NETWORK") or context.seen.fast_interface,
        lambda context: context.seen.interfaces,
        has_scheduler,
        r"[\w.:,^=-]*",
        "the first column of: ip -brief address",
    ),
    Question(
        "SCRATCH",
        "Folder for the run folders; none, for runs/ in the project: -",
        lambda context: context.template.get("SCRATCH") or context.seen.scratch,
    ),
)
NAMES = {question.name for question in QUESTIONS}


def template_values(jobs: Jobs, name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The values of the template alone, whatever the shell exports. ValueError if there is none."""
    clean = {key: value for key, value in environ.items() if not key.startswith(PREFIX)}
    return jobs.values(name, clean)


def given_answers(settings: Sequence[str], names: set[str]) -> dict[str, str]:
    """NAME=VALUE words as {NAME: VALUE}; the prefix may stand there or not.

    Raises ValueError for a word without =, or a name that is not among `names`.
    """
    given = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().removeprefix(PREFIX)
        if not equals:
            raise ValueError(f"'{setting}' is not an answer. Write it like QUEUE=gpu.")
        if name not in names | {"TEMPLATE"}:
            known = ", ".join(sorted(names | {"TEMPLATE"}))
            raise ValueError(f"'{name}' is not a name of a site file. Known: {known}.")
        given[name] = value.strip().strip("'\"")
    return given


def answer_all(
    seen: Seen,
    template: Mapping[str, str],
    given: Answers,
    put: Callable[[Question, str, Sequence[str]], str] | None = None,
    account_options: Sequence[str] = (),
) -> dict[str, str]:
    """{name: answer} to all questions that make sense, and what else was given.

    put: asks a person (question, default, choices) -> answer; None: the defaults are the answers.
    What was given is not asked. Raises ValueError for an answer that cannot be.
    """
    answers = {key: value for key, value in given.items() if key not in NAMES | {"TEMPLATE"}}
    for question in QUESTIONS:
        context = Context(seen, answers, template, account_options=account_options)
        if question.name in given:
            answer = given[question.name]
        elif not question.asked(context):
            continue
        else:
            default, choices = question.default(context), question.choices(context)
            answer = default if put is None else put(question, default, choices)
        if refusal := question.refusal(answer):
            raise ValueError(refusal)
        answers[question.name] = answer
    return answers
